# Perplexities of documents: a histogram of each of `lines` ($bins: line,middle,share; over low to
# high, the shares up to top), quantiles of each of `names` ($quantiles: row,5 %,25 %,50 %,75 %,95 %),
# and their perplexities over all tokens ($means: row,perplexity,twice its standard error).
line_count = |lines|
rows = |names|
longest = 0
do for [k = 1:rows] { longest = strlen(names[k]) > longest ? strlen(names[k]) : longest }
left = 40 + 7 * (longest < 40 ? longest : 40)
left = left < 80 ? 80 : left
page_width = 960
legend = line_count > 1 ? 20 * line_count + 10 : 0
bins_height = 260
rows_height = 20 + 24 * rows
page_height = 20 + legend + bins_height + 60 + rows_height + 60
short(name) = strlen(name) > 40 ? substr(name, 1, 38) . '...' : name
do for [format in formats] {
    eval begin(page_width, page_height)
    set multiplot
    unset title
    set logscale x
    eval log_tics
    set lmargin at screen 1.0 * left / page_width
    set rmargin at screen 1 - 20.0 / page_width
    set tmargin at screen 1 - (20.0 + legend) / page_height
    set bmargin at screen 1 - (20.0 + legend + bins_height) / page_height
    set xrange [low:high]
    set xlabel 'perplexity of a document'
    set ylabel 'share of documents'
    set yrange [0:top]
    if (line_count == 1) { unset key } else { set key at screen 1.0 * left / page_width, screen 1 - 12.0 / page_height left top vertical maxcols 1 Left reverse samplen 2 }
    plot for [g = 1:line_count] $bins using ($1 == g ? $2 : NaN):3 with histeps lc rgb colour(g) dt dash(g) lw thick(g, line_count) title lines[g]
    unset key
    set tmargin at screen 1 - (20.0 + legend + bins_height + 60) / page_height
    set bmargin at screen 60.0 / page_height
    set yrange [rows + 0.5:0.5]
    unset ylabel
    set ytics ()
    do for [k = 1:rows] { set ytics add (short(names[k]) k) }
    plot $quantiles using 2:1:2:6 with xerrorbars lc rgb '#999999' lw 1.5 pt -1, \
         '' using 3:1:($5 - $3):(0) with vectors nohead lc rgb '#56b4e9' lw 9, \
         '' using 4:1 with points lc rgb '#000000' pt 7 ps 0.7, \
         $means using 2:1 with points lc rgb '#d55e00' pt 13 ps 0.8, \
         '' using ($3 == $3 ? $2 : NaN):1:($2 - $3 > low ? $2 - $3 : low):($2 + $3 < high ? $2 + $3 : high) with xerrorbars lc rgb '#d55e00' lw 1.5 pt -1
    unset multiplot
}
