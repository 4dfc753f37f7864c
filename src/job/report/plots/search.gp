# Trials of a search ($trials: parameters,score,loss from scratch; NaN: not trained). finals: how many of those there are.
do for [format in formats] {
    eval begin(720, 420)
    set xlabel 'parameters'
    set ylabel 'validation loss, nats a token'
    set format x '%.1s%c'
    set offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05
    eval key_below
    if (finals > 0) {
        plot $trials using 1:2 with points lc rgb colour(1) pt 7 ps 0.7 title 'score of the search', \
             '' using 1:3 with points lc rgb colour(2) pt 9 ps 1.1 title 'trained from scratch'
    } else {
        plot $trials using 1:2 with points lc rgb colour(1) pt 7 ps 0.7 title 'score of the search'
    }
}
