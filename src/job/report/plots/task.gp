# Reliability of a classifier: accuracy by confidence ($bins: confidence,accuracy,count; a bin with more
# is a larger point).
do for [format in formats] {
    eval begin(520, 520)
    set xlabel 'confidence'
    set ylabel 'accuracy'
    set xrange [-0.02:1.02]
    set yrange [-0.02:1.02]
    set size square
    set key left top Left reverse samplen 2
    plot x with lines lc rgb '#999999' dt 2 title 'as sure as right', \
         $bins using 1:2 with lines lc rgb colour(1) lw 2 notitle, \
         '' using 1:2:(0.4 + 0.25 * log10($3)) with points lc rgb colour(1) pt 7 ps variable notitle
}
