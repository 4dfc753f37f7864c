# Trials of a search ($trials: parameters,score,loss from scratch,1 of the best; NaN: not trained).
# finals: 1 if losses from scratch are others than the scores; shared: 1 if scores are by shared weights; best: a trial's name.
do for [format in formats] {
    eval begin(720, 420)
    set xlabel 'parameters'
    set ylabel 'validation loss, nats a token'
    set format x '%.0s%c'
    set offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05
    eval key_below
    plot $trials using 1:2 with points lc rgb colour(1) pt 7 ps 0.7 title (shared ? 'score of the search' : 'trained from scratch'), \
         for [k = 1:finals] '' using 1:3 with points lc rgb colour(2) pt 9 ps 1.1 title 'trained from scratch', \
         '' using ($4 == 1 ? $1 : NaN):($3 == $3 ? $3 : $2):(best) with labels right offset -1, 0 notitle
}
