# methods.csv: the NLL in the domain, with its interval. Variables: methods; unit: what a prediction is of.
rows = |methods|
do for [format in formats] {
    eval begin(720, 320 + (rows > 9 ? 19 * (rows - 9) : 0))
    set key autotitle columnheader
    unset key
    set xlabel 'nats a ' . unit
    set yrange [rows - 0.5:-0.5]
    plot 'methods.csv' using (column('nll')):0:ytic(1) with points lc rgb colour(1) pt 7 notitle, \
         '' using (column('nll')):0:(column('nll_low')):(column('nll_high')) with xerrorbars lc rgb colour(1) lw 2 pt 7 notitle
}
