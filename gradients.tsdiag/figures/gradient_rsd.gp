# 'Relative standard deviation'
# Draw again with: gnuplot gradient_rsd.gp
reset
set encoding utf8
do for [format in "svg pdf"] {
tex = format eq "tex"
if (format eq "svg") {
small = ',9'
large = ',12'
set terminal svg noenhanced size 677,366 font 'sans-serif,11' background rgb 'white' dashlength 1 linewidth 1.2
}
if (format eq "pdf") {
small = ',9'
large = ',12'
set terminal pdfcairo noenhanced size 9.403in,5.083in font 'sans-serif,11' dashlength 2 linewidth 1.6
}
if (tex) {
small = ',9'
large = ',12'
set terminal tikz size 9.403in,5.083in font '\fontsize{11}{13.2}\selectfont' linewidth 1.6
}
set output 'gradient_rsd.'.format
set style line 1 linecolor rgb '#0072b2' linewidth 1.6 dashtype solid
set multiplot
unset key
set border 3 linecolor rgb '#888888'
set tics nomirror out scale 0.6 textcolor rgb '#333333'
set lmargin at screen 0.06056
set rmargin at screen 0.97637
set tmargin at screen 0.92896
set bmargin at screen 0.13661
set label (tex ? 'grad\_rsd' : 'grad_rsd') at screen 0.51846, screen 0.03825 center
set label 'the first on top' at screen 0.02068, screen 0.53279 center rotate by 90
set grid back linecolor rgb '#e4e4e4' linetype 1 linewidth 0.6
set xrange [0.44272601670815426:0.8270816664964714]
set xtics ('0.45' 0.45, '0.5' 0.5, '0.55' 0.55, '0.6' 0.6, '0.65' 0.65, '0.7' 0.7, '0.75' 0.75, '0.8' 0.8)
set yrange [0:2]
set ytics ('0' 0, '1' 1, '2' 2)
plot \
  'gradient_rsd.dat' index 0 using 1:2 with lines linestyle 1, \
  'gradient_rsd.dat' index 0 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#0072b2'
unset logscale
unset label
unset object
unset multiplot
reset
}
unset output
