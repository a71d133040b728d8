(function () {
  "use strict";
  // Search and filters by partition and process. What names no partition, such as a fault of a node, is always shown.
  var form = document.getElementById("find");
  if (!form) { return; }
  var search = form.querySelector("input[type=search]"), partition = form.querySelector("[name=partition]");
  var process = form.querySelector("[name=process]"), found = form.querySelector("[role=status]");
  var names = partition ? Array.prototype.map.call(partition.options, function (one) { return one.value; }).filter(Boolean) : [];
  var items = Array.prototype.map.call(document.querySelectorAll("article.anomaly, #faults tbody tr, .story > li, .partition"), function (one) {
    var holder = one.dataset.processes === undefined ? one.querySelector("[data-processes]") || one : one;
    var text = one.textContent.toLowerCase(), words = one.textContent.split(/[^A-Za-z0-9._-]+/);
    return {
      one: one,
      text: text,
      partitions: one.dataset.partition ? [one.dataset.partition] : names.filter(function (name) { return words.indexOf(name) >= 0; }),
      processes: holder.dataset.processes === undefined ? null : holder.dataset.processes.split(" ")
    };
  });
  function apply() {
    var words = search.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
    var where = partition ? partition.value : "", who = process ? process.value : "";
    items.forEach(function (item) {
      var fits = words.every(function (word) { return item.text.indexOf(word) >= 0; }) || item.one.classList.contains("partition");
      fits = fits && (!where || !item.partitions.length || item.partitions.indexOf(where) >= 0);
      fits = fits && (!who || item.processes === null || item.processes.indexOf(who) >= 0);
      item.one.classList.toggle("unwanted", !fits);
      shown += fits ? 1 : 0;
      if (fits && words.length) {
        for (var outer = item.one.closest("details"); outer; outer = outer.parentElement.closest("details")) { outer.open = true; }
      }
    });
    found.textContent = shown === items.length ? "" : shown + " of " + items.length + " anomalies, faults, entries and charts";
  }
  form.addEventListener("input", apply);
  form.addEventListener("change", apply);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("reset", function () { setTimeout(apply, 0); });
})();
