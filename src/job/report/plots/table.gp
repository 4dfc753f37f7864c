# bagpipe-data table --out: a figure of models by corpora and labels, with 95 % intervals; a point without one is of few
# documents. Variables: models, groups, xlabel, logarithmic (1: the axis is), $rows (model,group,value,low,high, the first
# two by number), low and high (the ends of all of these).
count = |models|
rows = |groups|
do for [format in formats] {
    eval begin(720, 110 + rows * (14 + 16 * count) + 19 * count)
    eval key_below
    set xlabel xlabel
    beside = (high / low) ** 0.03 # room for half a point
    if (logarithmic) { set logscale x; eval log_tics; set xrange [low * 0.97 / beside:high * 1.03 * beside] }
    set rmargin 6
    set yrange [rows + 0.5:0.5]
    set ytics scale 0 ()
    do for [g = 1:rows] { set ytics add (groups[g] g) }
    plot for [m = 1:count] $rows using ($1 == m && $4 < $5 ? $3 : NaN):($2 + (m - (count + 1) / 2.0) * 0.8 / count):4:5 \
         with xerrorbars lc rgb colour(m) lw 2 pt 7 ps 0.7 title models[m], \
         for [m = 1:count] $rows using ($1 == m && $4 == $5 ? $3 : NaN):($2 + (m - (count + 1) / 2.0) * 0.8 / count) \
         with points lc rgb colour(m) lw 2 pt 7 ps 0.7 notitle
}
