# risk_coverage.csv: the error rate of the predictions that a method is most confident of. Variables: methods; risks: of each, its
# risk at coverage 1, which any order of predictions has in the mean; count of predictions, each of a unit; intervals (1: a share
# has some); is_value (1: the risk is a squared error, no share).
rows = |methods|
shares = intervals && !is_value
# An interval at every tenth point of a curve, where no other curve has one.
at(m, coverage) = int(100 * coverage + 0.5) % 10 == (2 * m + (m > 5)) % 10
do for [format in formats] {
    eval begin(720, 420 + 19 * rows)
    set xlabel sprintf('coverage: share of the %.0f %ss, the most confident first', count, unit)
    set ylabel (is_value ? 'mean squared error of them' : 'share of them that are wrong')
    set xrange [0:1.02]
    if (is_value) { set yrange [0:*] } else { set yrange [0:*<1] }
    set offsets 0, 0, graph 0.08, 0
    eval key_below
    plot for [m = 1:(shares ? rows : 0)] 'risk_coverage.csv' using (strcol(1) eq methods[m] && strcol(2) eq 'confidence' && at(m, $3) && valid(6) ? $3 : NaN):4:6:7 \
         with yerrorbars lc rgb colour(m) pt 0 lw 1 notitle, \
         for [m = 1:rows] 'risk_coverage.csv' using (strcol(1) eq methods[m] && strcol(2) eq 'confidence' ? $3 : NaN):4 \
         with lines lc rgb colour(m) dt dash(m) lw thick(m, rows) title methods[m], \
         for [m = 1:rows] risks[m] with lines lc rgb colour(m) dt 3 lw 1 notitle
}
