// The search of the site: BM25 over the sections of all pages, which site_search.py has written as window.searchSections.
// A word counts more in a title or a heading than in the text. The best sections of a page give its rank.
"use strict";
(() => {
  const TITLE = 4, LINK = 3, HEADING = 3, TEXT = 1; // how often a word counts at each place
  const K = 1.2, B = 0.6; // the constants of BM25
  const SHOWN = 10; // pages
  // Pages for people who change the code, who look a name up, or who use another program count less than guides.
  const KINDS = [
    [/^(CHANGELOG|adding|architecture|contracts|glossary|decisions\/|files\/|bench\/)/, 0.6],
    [/^(reference|coming-from)\//, 0.75],
  ];
  const OTHER = 0.4; // the weight of a word that means the same as one that was typed
  const IGNORED = new Set(
    ("a about after all also am an and any are as at be been before between both but by can could did do does doing don " +
      "each else every for from get give go goes gives good had has have how i if in into is it its just ll like ls make me " +
      "mean more much must my need no not now of on one only or other our out over own re really s same see should so some " +
      "such t than that the their them then there these they thing this those to too up us use used using ve very want was " +
      "way we were what when where which while who why will with without would yet you your").split(" ")
  );
  // Words of questions, with the words that the pages have for them.
  const SAME = {
    bigger: "size", big: "size", chatbot: "conversation", chat: "conversation", continue: "resume", crash: "kill",
    dataset: "data", diverge: "finite", finetune: "fine tune", finetuning: "fine tune", freeze: "hang", frozen: "hang",
    generate: "sample", generation: "sample", gpu: "cpu", hf: "hugging face", huggingface: "hugging face", interrupt: "stop",
    laptop: "machine cpu", llm: "model", longer: "more", multinode: "host", nan: "finite", nodes: "host", oom: "memory",
    pause: "stop", quick: "fast", quit: "stop", quiet: "silent", ram: "memory", reproduce: "same bits", result: "bits",
    reproducible: "same bits", setup: "install", slow: "speed", stuck: "hang", swap: "memory", torch: "pytorch",
    determinism: "same bits", deterministic: "same bits", upload: "export", weights: "checkpoint",
  };

  const stem = (word) => {
    let w = word;
    if (w.length > 4) w = w.replace(/ies$/, "y").replace(/(ss|sh|ch|x)es$/, "$1").replace(/([^su])s$/, "$1");
    if (w.length > 5) w = w.replace(/(ing|ed|ly)$/, "");
    if (w.length > 6) w = w.replace(/(er|or|ion)$/, "");
    return w.replace(/([bdgklmnprt])\1$/, "$1").replace(/(..)e$/, "$1");
  };
  const words = (text) => text.toLowerCase().match(/[a-z0-9]+/g) || [];

  // Word -> [[section, weighted count], ...], and the weighted length of every section.
  const indexed = (sections) => {
    const links = window.searchLinks || {}; // what the first page says of each page
    const places = new Map();
    const lengths = sections.map(([page, title, , heading, text], number) => {
      const counts = new Map();
      let length = 0;
      const named = heading === title ? "" : heading;
      for (const [part, weight] of [[title, TITLE], [links[page] || "", LINK], [named, HEADING], [text, TEXT]]) {
        for (const word of words(part)) {
          if (IGNORED.has(word)) continue;
          const w = stem(word);
          counts.set(w, (counts.get(w) || 0) + weight);
          length += weight;
        }
      }
      for (const [word, count] of counts) {
        if (!places.has(word)) places.set(word, []);
        places.get(word).push([number, count]);
      }
      return length;
    });
    return { places, lengths, mean: lengths.reduce((a, b) => a + b, 1) / Math.max(1, lengths.length) };
  };

  // The words of a question with their weights: what was typed, and other words for it.
  const asked = (question, places) => {
    const found = new Map();
    const add = (word, weight) => found.set(word, Math.max(weight, found.get(word) || 0));
    const typed = words(question);
    const kept = typed.filter((word) => !IGNORED.has(word));
    for (const word of kept.length ? kept : typed) {
      const w = stem(word);
      if (places.has(w)) add(w, 1);
      else if (w.length > 2) for (const known of places.keys()) if (known.startsWith(w)) add(known, OTHER);
      for (const other of words(SAME[word] || SAME[w] || "")) add(stem(other), places.has(w) ? OTHER : 1);
    }
    return found;
  };

  let index = null;
  // The sections of each page that match, best first: [{page, title, score, parts: [[section, score], ...]}, ...].
  const search = (question) => {
    const sections = window.searchSections || [];
    index = index || indexed(sections);
    const scores = new Map();
    const matched = new Map(); // section -> the weights of the words that it has
    let mass = 0;
    const query = asked(question, index.places);
    for (const [word, weight] of query) {
      const at = index.places.get(word) || [];
      const rarity = Math.log(1 + (sections.length - at.length + 0.5) / (at.length + 0.5)) * weight;
      mass += rarity;
      for (const [number, count] of at) {
        const norm = 1 - B + (B * index.lengths[number]) / index.mean;
        scores.set(number, (scores.get(number) || 0) + (rarity * count * (K + 1)) / (count + K * norm));
        matched.set(number, (matched.get(number) || 0) + rarity);
      }
    }
    const pages = new Map();
    for (const [number, score] of scores) {
      const [page, title] = sections[number];
      if (!pages.has(page)) pages.set(page, { page, title, score: 0, parts: [] });
      // A section with all the words is worth more than one with a single word many times.
      pages.get(page).parts.push([number, score * (0.5 + matched.get(number) / mass / 2)]);
    }
    pages.delete("index"); // it has a line of every page
    for (const one of pages.values()) {
      one.parts.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
      one.parts.forEach(([, score], rank) => (one.score += score * 0.3 ** rank));
      for (const [pattern, weight] of KINDS) if (pattern.test(one.page)) one.score *= weight;
    }
    const ranked = [...pages.values()].sort((a, b) => b.score - a.score || (a.page < b.page ? -1 : 1));
    return { query, ranked };
  };

  // A piece of a text around the first word that was asked for, with these words marked.
  const snippet = (text, query) => {
    const paragraph = document.createElement("p");
    const pieces = text.split(/([A-Za-z0-9]+)/);
    const hit = pieces.findIndex((piece, at) => at % 2 && query.has(stem(piece.toLowerCase())));
    const start = Math.max(0, hit - 16);
    if (start) paragraph.append("… ");
    pieces.slice(start, start + 80).forEach((piece, at) => {
      const isAsked = (start + at) % 2 && query.has(stem(piece.toLowerCase()));
      const mark = isAsked ? document.createElement("mark") : piece;
      if (isAsked) mark.textContent = piece;
      paragraph.append(mark);
    });
    if (pieces.length > start + 80) paragraph.append(" …");
    return paragraph;
  };

  const show = (question) => {
    const { query, ranked } = search(question);
    const list = document.getElementById("search-results");
    list.replaceChildren();
    for (const { page, parts } of ranked.slice(0, SHOWN)) {
      const [, title, anchor, heading, text] = window.searchSections[parts[0][0]];
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `${page}.html${anchor ? "#" + anchor : ""}`;
      link.textContent = heading === title ? title : `${title} › ${heading}`;
      item.append(link, snippet(text, query));
      list.append(item);
    }
    const found = ranked.length ? `${ranked.length} page${ranked.length > 1 ? "s" : ""}` : "no page has these words";
    document.getElementById("search-state").textContent = question.trim() ? found : "";
  };

  window.searchPages = (question) => search(question).ranked.map(({ page }) => page);
  const box = document.getElementById("search-words");
  box.value = new URLSearchParams(location.search).get("q") || "";
  box.addEventListener("input", () => show(box.value));
  show(box.value);
})();
