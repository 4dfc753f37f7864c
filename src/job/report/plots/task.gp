# Reliability of a classifier: accuracy by confidence, with its interval, and below the number of predictions
# ($bins: confidence,accuracy,count,middle of the bin; independent: 1 of whole texts. Words of one document depend on each other: no interval).
do for [format in formats] {
    eval begin(560, 680)
    set multiplot
    set xrange [-0.02:1.02]
    set lmargin at screen 0.14
    set rmargin at screen 0.97
    set tmargin at screen 0.96
    set bmargin at screen 0.33
    set ylabel 'accuracy'
    set yrange [-0.02:1.02]
    set xtics 0.2
    set key at screen 0.14, screen 0.995 left top Left reverse samplen 2
    plot x with lines lc rgb '#666666' lw 1.5 dt 2 title 'as sure as right', \
         $bins using 1:2 with linespoints lc rgb colour(1) lw 2 pt 7 ps 0.6 notitle, \
         '' using 1:(independent ? $2 : NaN):(wilson_low($2, $3)):(wilson_high($2, $3)) with yerrorbars lc rgb colour(1) lw 1.5 pt 7 ps 0.6 notitle
    unset key
    set tmargin at screen 0.27
    set bmargin at screen 0.09
    set xlabel 'confidence'
    set ylabel 'predictions'
    set yrange [0:*]
    set ytics autofreq
    set boxwidth 1 / 15.0
    set style fill solid 0.5
    plot $bins using 4:3 with boxes lc rgb colour(1)
    unset multiplot
}
