# Predictions of a regression by the values that they predict ($points: value,prediction; $right: the line of those that are right).
do for [format in formats] {
    eval begin(560, 520)
    set xlabel 'value'
    set ylabel 'prediction'
    set offsets graph 0.03, graph 0.03, graph 0.03, graph 0.03
    eval key_below
    plot $points using 1:2 with points lc rgb '#80' . substr(colour(1), 2, 7) pt 7 ps 0.5 title 'a document', \
         $right with lines lc rgb '#666666' lw 1.5 dt 2 title 'a prediction that is right'
}
