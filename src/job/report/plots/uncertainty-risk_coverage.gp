# risk_coverage.csv: the error rate of the tokens that a method is most confident of. Variable: methods.
count = |methods|
do for [format in formats] {
    eval begin(720, 420 + 19 * count)
    set xlabel 'coverage: share of tokens, the most confident first'
    set ylabel 'share of them that are wrong'
    set xrange [0:1.02]
    set yrange [0:*]
    set offsets 0, 0, graph 0.08, 0
    eval key_below
    plot for [m = 1:count] 'risk_coverage.csv' using (strcol(1) eq methods[m] && strcol(2) eq 'confidence' ? $3 : NaN):4 \
         with lines lc rgb colour(m) dt dash(m) lw thick(m, count) title methods[m]
}
