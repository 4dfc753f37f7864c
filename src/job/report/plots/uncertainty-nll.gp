# methods.csv: the NLL in the domain, with its interval. Variable: methods.
count = |methods|
do for [format in formats] {
    eval begin(720, 320 + (count > 9 ? 19 * (count - 9) : 0))
    set key autotitle columnheader
    unset key
    set xlabel 'nats a token'
    set yrange [count - 0.5:-0.5]
    plot 'methods.csv' using (column('nll')):0:ytic(1) with points lc rgb colour(1) pt 7 notitle, \
         '' using (column('nll')):0:(column('nll_low')):(column('nll_high')) with xerrorbars lc rgb colour(1) lw 2 pt 7 notitle
}
