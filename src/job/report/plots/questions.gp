# Accuracies of a question set with their intervals, and what guessing gets right.
# Variables: names (tasks and groups); $accuracies: row,accuracy,low,high,chance (NaN: none).
rows = |names|
longest = 0
do for [k = 1:rows] { longest = strlen(names[k]) > longest ? strlen(names[k]) : longest }
left = 40 + 7 * (longest < 40 ? longest : 40)
page_width = 720
page_height = 90 + 24 * rows
short(name) = strlen(name) > 40 ? substr(name, 1, 38) . '...' : name
do for [format in formats] {
    eval begin(page_width, page_height)
    set lmargin at screen 1.0 * left / page_width
    set rmargin at screen 1 - 20.0 / page_width
    set tmargin at screen 1 - 16.0 / page_height
    set bmargin at screen 56.0 / page_height
    set xlabel 'accuracy'
    set xrange [-0.02:1.02]
    set xtics 0.2
    set yrange [rows + 0.5:0.5]
    set ytics ()
    do for [k = 1:rows] { set ytics add (short(names[k]) k) }
    unset key
    plot $accuracies using 5:($1 - 0.3):(0):(0.6) with vectors nohead lc rgb '#d55e00' lw 3, \
         '' using 2:1:3:4 with xerrorbars lc rgb colour(1) lw 2 pt -1, \
         '' using 2:1 with points lc rgb colour(1) pt 7 ps 0.8
}
