# Trainings over one another. Variables: x ("steps", "tokens" or "hours"); of each curve its name,
# number (its colour), members (1: it is one of an ensemble) and few (1: so few lines that each is a
# point); validations (how many); accuracies (1: they have them); axis ("loss, nats a token": the title of the axis of losses); the largest (most) of
# steps, tokens, hours and tokens/s; alone (1: of one run); top, where the axis of losses ends (NaN: where the curves do); $train and $valid, a
# block a curve, as training.c writes them. The script in pages/training.html knows where the panel of losses is.
curves = |names|
column_x = x eq 'tokens' ? 2 : x eq 'hours' ? 3 : 1

# Large numbers are shown in thousands, millions...
factor(most) = most >= 2e9 ? 1e9 : most >= 2e6 ? 1e6 : most >= 2e4 ? 1e3 : 1
scaled(most) = most >= 2e9 ? ', billions' : most >= 2e6 ? ', millions' : most >= 2e4 ? ', thousands' : ''
most_x = most[column_x]
short = x eq 'hours' && most_x < 2 # then minutes, or seconds
unit_x = !(x eq 'hours') ? factor(most_x) : !short ? 1 : most_x * 60 < 2 ? 1 / 3600.0 : 1 / 60.0
label_x = !(x eq 'hours') ? x . scaled(most_x) : !short ? x : most_x * 60 < 2 ? 'seconds' : 'minutes'
unit_speed = factor(most[4])
label_speed = 'tokens/s' . scaled(most[4])

# The legend: as many names side by side as fit.
longest = 0
named = 0
do for [k = 1:curves] {
    longest = strlen(names[k]) > longest ? strlen(names[k]) : longest
    named = named + (names[k] ne '')
}
page_width = 960
columns = int(page_width / (8 * longest + 60))
columns = columns < 1 ? 1 : columns > named ? named : columns
legend = curves > 1 || validations > 0 ? 20 * ceil(1.0 * (named + (validations > 0)) / columns) + 10 : 0
loss_height = 340
valid_height = accuracies ? 190 : 0
small_height = 190
gap = 66
page_height = 20 + legend + loss_height + gap + (accuracies ? valid_height + gap : 0) + 24 + small_height + 60

# A panel by its edges in points from the left and the top.
panel(left, right, top, bottom) = \
    sprintf('set lmargin at screen %f; set rmargin at screen %f; set tmargin at screen %f; set bmargin at screen %f', \
            1.0 * left / page_width, 1.0 * right / page_width, 1 - 1.0 * top / page_height, 1 - 1.0 * bottom / page_height)
line(k) = members[k] ? 1.2 : 2.5
symbol(k) = few[k] ? 7 : -1
small(k) = members[k] ? faint(k) : colour(numbers[k])
faint(k) = (members[k] ? (alone ? '#90' : '#b0') : '#b0') . substr(colour(numbers[k]), 2, 7)

# Tics of the small panels: labels of more than five would run together.
span_x = 1.0 * most_x / unit_x
quarter = span_x > 0 ? span_x / 4 : 1
power = 10.0 ** floor(log10(quarter))
step_x = power * (quarter <= power ? 1 : quarter <= 2 * power ? 2 : quarter <= 5 * power ? 5 : 10)

do for [format in formats] {
    eval begin(page_width, page_height)
    set multiplot
    set xtics autofreq
    unset title
    set xrange [0:most_x / unit_x * 1.02]
    if (legend == 0) { unset key } else { set key at screen 0.08, screen 1 - 10.0 / page_height left top horizontal maxcols columns Left reverse samplen 2 }
    at = 20 + legend
    eval panel(80, page_width - 20, at, at + loss_height)
    set ylabel axis
    set xlabel label_x
    if (top == top) { set yrange [*:top] }
    plot for [k = 1:curves] $train index k - 1 using (column(column_x) / unit_x):5:6 with filledcurves lc rgb faint(k) fs solid noborder notitle, \
         for [k = 1:curves] $train index k - 1 using (column(column_x) / unit_x):4 with lines lc rgb faint(k) lw 1 notitle, \
         for [k = 1:curves] $train index k - 1 using (column(column_x) / unit_x):7 with linespoints lc rgb colour(numbers[k]) dt dash(numbers[k]) lw line(k) pt symbol(k) ps 0.5 title (curves > 1 ? names[k] : 'training loss'), \
         for [k = 1:curves] $valid index k - 1 using (column(column_x) / unit_x):4 with linespoints lc rgb colour(numbers[k]) dt 3 lw line(k) pt 6 ps (validations > 60 * curves ? 0.3 : 0.7) notitle, \
         for [k = 1:(validations > 0)] 1/0 with linespoints lc rgb (curves > 1 ? '#555555' : colour(numbers[1])) dt 3 lw 2 pt 6 ps 0.7 title 'validation loss'
    unset key
    at = at + loss_height + gap
    if (accuracies) {
        eval panel(80, page_width - 20, at, at + valid_height)
        set ylabel 'validation accuracy'
        set yrange [0:1]
        plot for [k = 1:curves] $valid index k - 1 using (column(column_x) / unit_x):5 with linespoints lc rgb colour(numbers[k]) dt dash(numbers[k]) lw line(k) pt 7 ps 0.5
        at = at + valid_height + gap
    }
    at = at + 24
    set xtics step_x
    unset ylabel
    set yrange [0:*]
    set title 'learning rate' offset 0, -0.5
    eval panel(80, 320, at, at + small_height)
    plot 0 with lines lc rgb '#cccccc', for [k = 1:curves] $train index k - 1 using (column(column_x) / unit_x):8 with linespoints lc rgb small(k) dt dash(numbers[k]) lw 1.5 pt symbol(k) ps 0.4
    set title 'gradient norm'
    eval panel(400, 630, at, at + small_height)
    plot 0 with lines lc rgb '#cccccc', for [k = 1:curves] $train index k - 1 using (column(column_x) / unit_x):9 with linespoints lc rgb small(k) dt dash(numbers[k]) lw 1.2 pt symbol(k) ps 0.4
    set title label_speed
    eval panel(710, 940, at, at + small_height)
    plot 0 with lines lc rgb '#cccccc', for [k = 1:curves] $train index k - 1 using (column(column_x) / unit_x):($10 / unit_speed) with linespoints lc rgb small(k) dt dash(numbers[k]) lw 1.2 pt symbol(k) ps 0.4
    unset multiplot
}
