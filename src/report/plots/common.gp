# What all plots share. A script draws once for each of `formats` ("svg png"), and begins each with
#     eval begin(WIDTH, HEIGHT)
# Pictures go to the files output.FORMAT; without an `output`, to standard output.
if (!exists('formats')) formats = 'svg'
if (!exists('output')) output = ''
if (!exists('title')) title = ''
begin(width, height) = 'reset; set encoding utf8; set datafile separator comma; ' \
    . (format eq 'png' \
       ? sprintf('set terminal pngcairo noenhanced size %d,%d fontscale 1.3; ', width * 1.5, height * 1.5) \
       : sprintf('set terminal svg noenhanced size %d,%d font "sans-serif,13" background "#ffffff"; ', width, height)) \
    . (output eq '' ? 'set output; ' : sprintf('set output "%s.%s"; ', output, format)) \
    . 'set grid lt 1 lc rgb "#cccccc" lw 0.6; set title title'

# Okabe and Ito's colours, which all eyes tell apart; then again with dashes.
array colours[7] = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000']
colour(k) = colours[(k - 1) % 7 + 1]
dash(k) = 1 + (k - 1) / 7 % 5
# Curve k of n: the later ones are thinner, so that one below another is seen.
width(k, n) = n > 1 ? 4 - 2.0 * (k - 1) / (n - 1) : 3
