  /* ---- what all pages with a script have in common: text is never markup ---- */
  function make(tag, attributes, children) {
    var element = document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (name) {
      if (name === "text") element.textContent = attributes.text;
      else element.setAttribute(name, attributes[name]);
    });
    (children || []).forEach(function (child) { element.append(child); });
    return element;
  }
  function section(title) {  // in `views` of the page
    var part = make("section", {}, [make("h2", {text: title})]);
    views.append(part);
    return part;
  }
  function shown(text) {  // no character that turns the direction of what follows
    return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, function (c) { return "\\u" + c.charCodeAt(0).toString(16); });
  }
  function visible(text) {  // a token that is white space alone
    return shown(text).trim() || shown(text).replace(/ /g, "\u2423").replace(/\n/g, "\u21b5") || "\u2423";
  }
  function bytesOf(text) {
    var raw = atob(text), bytes = new Uint8Array(raw.length), k;
    for (k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
    return bytes;
  }
  function valuesOf(text) {  // the three upper bytes of a float32 each
    var bytes = bytesOf(text), values = new Float32Array(bytes.length / 3), word = new DataView(new ArrayBuffer(4)), k;
    for (k = 0; k < values.length; k++) {
      word.setUint32(0, (bytes[3 * k] << 8 | bytes[3 * k + 1] << 16 | bytes[3 * k + 2] << 24) >>> 0);
      values[k] = word.getFloat32(0);
    }
    return values;
  }
  function digits(value) {
    return value === null || value === undefined ? "\u2013" : Math.abs(value) >= 1000 || value === 0 ? String(Math.round(value)) : value.toPrecision(3);
  }
  function tick(value, step) {  // as many decimals as tell neighbours apart
    return step >= 1e-4 ? value.toFixed(Math.max(2, Math.ceil(-Math.log10(step)))) : value === 0 ? "0" : value.toExponential(1);
  }
  function choice(name, options, change) {  // a <select> with a name
    var select = make("select", {"aria-label": name}, options.map(function (option, k) { return make("option", {value: k, text: option}); }));
    select.addEventListener("change", change);
    return select;
  }
  function label(text, element) { return make("label", {}, [text + " ", element]); }
  function paint(element, share) {  // -1 to 1: blue lowers, orange raises
    element.style.background = !share ? "" : share > 0 ? "rgba(213, 94, 0, " + share.toFixed(3) + ")" : "rgba(0, 114, 178, " + (-share).toFixed(3) + ")";
  }
  function marked(before, token, after, title) {  // a token between what stands around it
    var text = shown(token), space = /^ +(?=[^ ])/.exec(text);
    return make("bdi", {class: "context"}, [shown(before).replace(/^ /, ""), space ? space[0] : "",
      make("mark", {text: (space ? text.slice(space[0].length) : text) || "\u2423", title: title || ""}), shown(after)]);
  }
  function inContext(places, k) {  // a place of the corpus
    return marked(places.before[k], places.token[k], places.after[k], shown(places.documents[places.document[k]]) + ", place " + places.place[k]);
  }
  /* Lines over layers: [{name, values}...]; null: none there. */
  function layerLines(layers, series, about) {
    var W = 640, H = 270, LEFT = 72, DOWN = 44, COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"], low = 0, high = 0;
    var all = [], holder = make("div"), svg, space, key = make("p", {class: "says"}), step, k;
    holder.innerHTML = "<svg></svg>";
    svg = holder.firstChild;
    space = svg.namespaceURI;
    function put(tag, attributes, text) {
      var element = document.createElementNS(space, tag);
      Object.keys(attributes).forEach(function (name) { element.setAttribute(name, attributes[name]); });
      if (text !== undefined) element.textContent = text;
      svg.append(element);
      return element;
    }
    series.forEach(function (one) { all = all.concat(one.values.filter(function (v) { return v !== null; })); });
    all.forEach(function (v) {
      low = Math.min(low, v);
      high = Math.max(high, v);
    });
    if (high === low) high = low + 1;
    step = Math.pow(10, Math.floor(Math.log10((high - low) / 3)));  // 1, 2 or 5 times a power of ten: 3 to 7 ticks
    step *= (high - low) / step > 15 ? 5 : (high - low) / step > 7 ? 2 : 1;
    low = Math.floor(low / step + 1e-9) * step;
    high = Math.ceil(high / step - 1e-9) * step;
    function x(at) { return LEFT + (layers.length > 1 ? at / (layers.length - 1) : 0.5) * (W - LEFT - 12); }
    function y(v) { return 16 + (high - v) / (high - low) * (H - DOWN - 16); }
    svg.setAttribute("viewBox", "0 0 " + W + " " + H);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", about);
    for (k = Math.round(low / step); k <= Math.round(high / step); k++) {
      put("line", {x1: LEFT, x2: W - 12, y1: y(k * step), y2: y(k * step), stroke: "#ddd"});
      put("text", {x: LEFT - 6, y: y(k * step) + 4, "text-anchor": "end", "font-size": 12}, tick(k * step, step));
    }
    layers.forEach(function (layer, at) {
      if (layers.length <= 16 || at % Math.ceil(layers.length / 16) === 0) put("text", {x: x(at), y: H - DOWN + 18, "text-anchor": "middle", "font-size": 12}, layer);
    });
    put("text", {x: (W + LEFT) / 2, y: H - 4, "text-anchor": "middle", "font-size": 12}, "layer");
    series.forEach(function (one, n) {
      var colour = COLOURS[n % COLOURS.length], points = [];
      one.values.forEach(function (v, at) {
        if (v === null) return;
        points.push(x(at).toFixed(1) + "," + y(v).toFixed(1));
        put("circle", {cx: x(at), cy: y(v), r: 3, fill: colour});
      });
      put("polyline", {points: points.join(" "), fill: "none", stroke: colour, "stroke-width": 2});
      key.append(make("span", {style: "color:" + colour, text: "\u25cf "}), make("bdi", {text: shown(one.title || one.name)}), "   ");
    });
    return make("figure", {class: "lines"}, [svg, key]);
  }
