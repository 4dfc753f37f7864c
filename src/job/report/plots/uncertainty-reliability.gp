# reliability.csv: accuracy by confidence; bins of fewer than 10 tokens show nothing. Variables:
# methods, drawn (1: the method has other bins).
count = |methods|
do for [format in formats] {
    eval begin(720, 480 + 19 * (count + 1))
    set xlabel 'confidence'
    set ylabel 'accuracy'
    set xrange [-0.02:1.02]
    set yrange [-0.02:1.02]
    set size square
    eval key_below
    plot x with lines lc rgb '#999999' dt 2 title 'as sure as right', \
         for [m = 1:count] 'reliability.csv' using (strcol(1) eq methods[m] && $4 >= 10 ? $5 : NaN):6 smooth unique \
         with linespoints lc rgb colour(m) dt dash(m) lw thick(m, count) pt 7 ps 0.6 title (drawn[m] ? methods[m] : '')
}
