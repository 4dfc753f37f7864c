# The rows of one shift in roc.csv: are its documents distinguished from those in the domain? A panel a score,
# one key for all. Variables: methods, $rows (method,score,fpr,tpr, both by number).
count = |methods|
array names[3] = ['mutual information', 'entropy', 'NLL']
side = 280
page_width = 85 + 2 * 345 + side + 30
page_height = 75 + side + 65 + 19 * count
do for [format in formats] {
    eval begin(page_width, page_height)
    set multiplot title title
    set xrange [-0.02:1.02]
    set yrange [-0.02:1.02]
    set xtics 0.25
    set ytics 0.25
    set key at screen 85.0 / page_width, screen 1 - (75 + side + 60.0) / page_height left top vertical maxcols 1 Left reverse
    set xlabel 'in-domain documents called shifted'
    set tmargin at screen 1 - 75.0 / page_height
    set bmargin at screen 1 - (75.0 + side) / page_height
    do for [panel = 1:3] {
        left = 85.0 + (panel - 1) * 345
        set lmargin at screen left / page_width
        set rmargin at screen (left + side) / page_width
        set title 'by ' . names[panel]
        set ylabel (panel == 1 ? 'shifted documents found' : '')
        # by NLL each method has a curve: its panel has the names
        plot x with lines lc rgb '#999999' dt 2 notitle, \
             for [m = 1:count] $rows using ($1 == m && $2 == panel ? $3 : NaN):4 \
             with lines lc rgb colour(m) dt dash(m) lw thick(m, count) title (panel == 3 ? methods[m] : '')
    }
    unset multiplot
}
