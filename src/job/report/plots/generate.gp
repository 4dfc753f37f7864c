# BLEU of the texts of which a model is surest, against their share. Variables: titles (one or two curves); $logprob and $information:
# share,BLEU,low,high (NaN: no interval); whole, the BLEU of all texts, of `prompts` prompts.
two = |titles| > 1
# The intervals of two curves beside each other.
aside(k) = two ? (k - 1.5) * 0.008 : 0
do for [format in formats] {
    eval begin(720, two ? 420 : 400)
    set xlabel sprintf('share of the texts of %.0f prompts, the surest first', prompts)
    set ylabel 'BLEU of them'
    set xrange [0:1.04]
    set yrange [0:*]
    set offsets 0, 0, graph 0.08, 0
    eval key_below
    plot $logprob using ($1 + aside(1)):2:3:4 with yerrorbars lc rgb colour(1) pt 0 lw 1 notitle, \
         $information using (two ? $1 + aside(2) : NaN):2:3:4 with yerrorbars lc rgb colour(2) pt 0 lw 1 notitle, \
         $logprob using 1:2 with lines lc rgb colour(1) lw 3 title titles[1], \
         $information using (two ? $1 : NaN):2 with lines lc rgb colour(2) lw 2 title (two ? titles[2] : ''), \
         whole with lines lc rgb '#666666' dt 3 lw 1.5 notitle
}
