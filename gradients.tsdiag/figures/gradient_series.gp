# 'Gradient norm by step'
# Draw again with: gnuplot gradient_series.gp
reset
set encoding utf8
do for [format in "svg pdf"] {
tex = format eq "tex"
if (format eq "svg") {
small = ',9'
large = ',12'
set terminal svg noenhanced size 999,321 font 'sans-serif,11' background rgb 'white' dashlength 1 linewidth 1.2
}
if (format eq "pdf") {
small = ',9'
large = ',12'
set terminal pdfcairo noenhanced size 13.875in,4.458in font 'sans-serif,11' dashlength 2 linewidth 1.6
}
if (tex) {
small = ',9'
large = ',12'
set terminal tikz size 13.875in,4.458in font '\fontsize{11}{13.2}\selectfont' linewidth 1.6
}
set output 'gradient_series.'.format
set style line 1 linecolor rgb '#0072b2' linewidth 1.6 dashtype solid
set style line 2 linecolor rgb '#d55e00' linewidth 1.6 dashtype (9,2)
set multiplot
unset key
set border 3 linecolor rgb '#888888'
set tics nomirror out scale 0.6 textcolor rgb '#333333'
set lmargin at screen 0.05506
set rmargin at screen 0.31732
set tmargin at screen 0.91900
set bmargin at screen 0.24922
set label (tex ? 'clipped.jsonl: grad\_norm' : 'clipped.jsonl: grad_norm') at screen 0.05506, screen 0.95950 left font large
set label 'step' at screen 0.18619, screen 0.13707 center
set label 'gradient norm' at screen 0.01401, screen 0.58411 center rotate by 90
set grid back linecolor rgb '#e4e4e4' linetype 1 linewidth 0.6
set xrange [-1.18:60.18]
set xtics ('0' 0, '20' 20, '40' 40, '60' 60)
set yrange [0.192349944689683:3.2688367266087073]
set ytics ('1' 1, '2' 2, '3' 3)
plot \
  'gradient_series.dat' index 0 using 1:2 with lines linestyle 1, \
  'gradient_series.dat' index 0 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#0072b2', \
  'gradient_series.dat' index 1 using 1:2 with lines linestyle 2, \
  'gradient_series.dat' index 1 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#d55e00'
unset logscale
unset label
unset object
set lmargin at screen 0.38839
set rmargin at screen 0.65065
set tmargin at screen 0.91900
set bmargin at screen 0.24922
set label (tex ? 'clipped.jsonl: grad\_norm\_max' : 'clipped.jsonl: grad_norm_max') at screen 0.38839, screen 0.95950 left font large
set label 'step' at screen 0.51952, screen 0.13707 center
set label 'gradient norm' at screen 0.34735, screen 0.58411 center rotate by 90
set grid back linecolor rgb '#e4e4e4' linetype 1 linewidth 0.6
set xrange [-1.18:60.18]
set xtics ('0' 0, '20' 20, '40' 40, '60' 60)
set yrange [2.7:3.3]
set ytics ('2.8' 2.8, '3' 3, '3.2' 3.2)
plot \
  'gradient_series.dat' index 2 using 1:2 with lines linestyle 1, \
  'gradient_series.dat' index 2 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#0072b2', \
  'gradient_series.dat' index 3 using 1:2 with lines linestyle 2, \
  'gradient_series.dat' index 3 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#d55e00'
unset logscale
unset label
unset object
set lmargin at screen 0.72172
set rmargin at screen 0.98398
set tmargin at screen 0.91900
set bmargin at screen 0.24922
set label (tex ? 'clipped.jsonl: grad\_norm/max' : 'clipped.jsonl: grad_norm/max') at screen 0.72172, screen 0.95950 left font large
set label 'step' at screen 0.85285, screen 0.13707 center
set label 'gradient norm' at screen 0.68068, screen 0.58411 center rotate by 90
set grid back linecolor rgb '#e4e4e4' linetype 1 linewidth 0.6
set xrange [-1.18:60.18]
set xtics ('0' 0, '20' 20, '40' 40, '60' 60)
set yrange [2.7:3.3]
set ytics ('2.8' 2.8, '3' 3, '3.2' 3.2)
plot \
  'gradient_series.dat' index 4 using 1:2 with lines linestyle 1, \
  'gradient_series.dat' index 4 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#0072b2', \
  'gradient_series.dat' index 5 using 1:2 with lines linestyle 2, \
  'gradient_series.dat' index 5 using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '#d55e00'
unset logscale
unset label
unset object
set lmargin at screen 0.01
set rmargin at screen 0.99
set bmargin at screen 0.02492
set tmargin at screen 0.09346
unset border
unset tics
unset grid
unset title
unset xlabel
unset ylabel
set xrange [0:1]
set yrange [0:1]
set key center center horizontal samplen 4 width 1 maxcols 2
plot \
  NaN with lines linestyle 1 title 'as logged', \
  NaN with lines linestyle 2 title 'moving mean'
unset multiplot
reset
}
unset output
