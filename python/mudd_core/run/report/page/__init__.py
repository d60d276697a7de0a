"""One self-contained HTML page of a run: `launch.py report RUN --html FILE`.

How to add to it: write a function that takes `Records` (records.py: the run's config, rows, events and files) and
returns a `Section` (elements.py) or None where the run has nothing to show; add it to SECTIONS in run_page.py. Its body
is HTML from these builders, which escape all text that they are given:

- line_chart(title, series, ...) in line_chart.py: curves and dots over steps, tokens and minutes. `Records.places`
  gives the abscissae of steps; `Series` takes them with the values. Long series are thinned here, spikes kept. A `Mark`
  is a vertical line with a text; curves.py has those of a run's resumes and rewinds (`breaks`).
- heat_map(title, values, ...) in heat_map.py: cells of rows by columns, with a slider where there are several steps.
- table(rows, head) and folded(summary, body) in elements.py, with text(words) for a paragraph.

shell.py makes a page of any sections: `page(title, subtitle, sections)`. The page loads nothing, so a builder may add
neither links to files nor event attributes; page.css has its colors as variables and page.js the values at the pointer.
"""
