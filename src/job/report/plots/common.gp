# What all plots share. A script draws once for each of `formats` ("svg png", of svg, png and pdf), and begins each with
#     eval begin(WIDTH, HEIGHT)
# Pictures go to the files output.FORMAT; without an `output`, to standard output.
if (!exists('formats')) formats = 'svg'
if (!exists('output')) output = ''
if (!exists('title')) title = ''
png = strstrt(GPVAL_TERMINALS, 'pngcairo') > 0 ? 'pngcairo' : 'png'
begin(width, height) = 'reset; set encoding utf8; set datafile separator comma; ' \
    . (format eq 'png' ? sprintf('set terminal %s noenhanced size %d,%d fontscale 1.3; ', png, width * 1.5, height * 1.5) \
       : format eq 'pdf' && strstrt(GPVAL_TERMINALS, 'pdfcairo') > 0 \
         ? sprintf('set terminal pdfcairo noenhanced size %.3fin,%.3fin font "sans-serif,10" linewidth 1.5; ', width / 96.0, height / 96.0) \
       : format eq 'svg' ? sprintf('set terminal svg noenhanced size %d,%d font "sans-serif,13" background "#ffffff"; ', width, height) \
       : sprintf('exit error "formats: %s cannot be drawn here; give svg, png or, with the terminal pdfcairo, pdf"; ', format)) \
    . (output eq '' ? 'set output; ' : sprintf('set output "%s.%s"; ', output, format)) \
    . 'set grid lt 1 lc rgb "#cccccc" lw 0.6; set title title'

# Okabe and Ito's colours, which all eyes distinguish; then again with dashes.
array colours[7] = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000']
colour(k) = colours[(k - 1) % 7 + 1]
dash(k) = 1 + (k - 1) / 7 % 5
# Curve k of n: the later ones are thinner, so that one below another is seen.
thick(k, n) = n > 1 ? 4 - 2.0 * (k - 1) / (n - 1) : 3
# Below the axes, a name a line: nothing lies over a curve, and a name may be long.
key_below = 'set key bmargin center vertical maxcols 1 Left reverse height 1'
# Wilson's 95 % interval of a share p of n.
wilson_middle(p, n) = (p + 1.9208 / n) / (1 + 3.8415 / n)
wilson_half(p, n) = 1.96 / (1 + 3.8415 / n) * sqrt(p * (1 - p) / n + 0.9604 / n ** 2)
wilson_low(p, n) = wilson_middle(p, n) - wilson_half(p, n)
wilson_high(p, n) = wilson_middle(p, n) + wilson_half(p, n)
# Labelled tics of a logarithmic axis over low to high (where a script has these): of these choices the first that has
# three within the axis, or else steps between its ends. `eval log_tics`.
digits = ''
if (exists('low') && exists('high')) {
    array choices[3] = ['1', '1 2 5', '1 1.5 2 3 4 5 6 8']
    do for [c = 1:3] {
        found = 0
        do for [power = -1:12] { do for [digit in choices[c]] {
            at = real(digit) * 10.0 ** power
            found = found + (at >= low && at <= high)
        } }
        if (digits eq '' && found >= 3) { digits = choices[c] }
    }
    step = 10.0 ** floor(log10((high - low) / 3))
    step = step * ((high - low) / step >= 15 ? 5 : (high - low) / step >= 6 ? 2 : 1)
}
log_tics = 'set xtics (); do for [power = -1:12] { do for [digit in digits] { set xtics add (real(digit) * 10.0 ** power) } }; ' \
    . 'if (digits eq "") { do for [k = 0:int((high - low) / step) + 1] { set xtics add ((ceil(low / step) + k) * step) } }'
