"""One self-contained HTML page of a run: `launch.py report RUN --html FILE`.

To add a section, write a function that reads `Records` (records.py: the run's config, metrics, events and files) and
returns a `Section` (elements.py), or None if the run has nothing to show. Add the function to SECTIONS in run_page.py.
The section's body is HTML from these builders, which escape all their text arguments:

- line_chart(title, series, ...) in line_chart.py: curves and dots over steps, tokens and minutes. `Records.places`
  returns the x coordinates of steps; a `Series` has them and the values. The chart thins long series but keeps spikes.
  A `Mark` is a labelled vertical line; `breaks` in time_line.py returns the marks for a run's resumes and rewinds.
- heat_map(title, values, ...) in heat_map.py: a matrix of colored cells, with a slider if there are several steps.
- table(rows, head), cards(facts), folded(summary, body) and text(words), a paragraph, in elements.py.

shell.py builds a page from any sections: `page(title, subtitle, sections)`. The page loads nothing, so a builder may
add neither images nor event attributes. page.css defines the colors as variables; page.js shows the values at
the pointer.
"""
