# reliability.csv: accuracy by confidence, and below how many predictions a bin has; bins of fewer than 10 show nothing.
# Variables: methods, drawn (1: the method has other bins), intervals (1: there are some).
rows = |methods|
page_height = 690 + 19 * (rows + 1)
do for [format in formats] {
    eval begin(720, page_height)
    set multiplot title title
    set lmargin at screen 0.14
    set rmargin at screen 0.86
    set tmargin at screen 1 - 80.0 / page_height
    set bmargin at screen 1 - 450.0 / page_height
    set ylabel 'accuracy'
    set xrange [-0.02:1.02]
    set yrange [-0.02:1.02]
    set title 'Accuracy by confidence'
    set key at screen 0.14, screen (19.0 * (rows + 1) + 6) / page_height left top vertical maxcols 1 Left reverse
    plot x with lines lc rgb '#666666' lw 1.5 dt 2 title 'as sure as right', \
         for [m = 1:(intervals ? rows : 0)] 'reliability.csv' using (strcol(1) eq methods[m] && $4 >= 10 && valid(7) ? $5 : NaN):6:7:8 \
         with yerrorbars lc rgb colour(m) pt 0 notitle, \
         for [m = 1:rows] 'reliability.csv' using (strcol(1) eq methods[m] && $4 >= 10 ? $5 : NaN):6 smooth unique \
         with linespoints lc rgb colour(m) dt dash(m) lw thick(m, rows) pt 7 ps 0.6 title (drawn[m] ? methods[m] : '')
    unset key
    set title 'How many predictions have it'
    set tmargin at screen 1 - 530.0 / page_height
    set bmargin at screen 1 - 630.0 / page_height
    set xlabel 'confidence'
    set ylabel unit . 's'
    set yrange [0:*]
    set ytics autofreq
    set xtics 0.2
    plot for [m = 1:rows] 'reliability.csv' using (strcol(1) eq methods[m] ? ($2 + $3) / 2 : NaN):4 \
         with histeps lc rgb colour(m) dt dash(m) lw thick(m, rows)
    unset multiplot
}
