# The rows of one method in histogram.csv: mutual information of documents. Variables: unit; groups,
# $rows (group by number,middle of the bin,share of the group's documents).
lines = |groups|
do for [format in formats] {
    eval begin(720, 380 + 19 * lines)
    set xlabel 'mutual information of a document, nats a ' . unit
    set ylabel 'share of documents'
    set yrange [0:*]
    set offsets 0, 0, graph 0.08, 0
    eval key_below
    plot for [g = 1:lines] $rows using ($1 == g ? $2 : NaN):3 \
         with histeps lc rgb colour(g) dt dash(g) lw thick(g, lines) title groups[g]
}
