# Horizontal bars, so that long names can be read, each with its value. figures.py sets file
# (without suffix), title, series and labels (their numbers), limit (where a line is; 0: none).
set terminal svg size 960, 110 + 20 * series * labels font 'sans-serif,12' background 'white'
set output file . '.svg'
set title title noenhanced
set style fill solid 0.9 noborder
set border 3
set tics nomirror
set grid xtics linecolor '#dddddd'
set ytics noenhanced
set key outside bottom center horizontal noenhanced
set linetype 1 linecolor '#336791'
set linetype 2 linecolor '#d38b28'
set linetype 3 linecolor '#7a9e48'
set xrange [0:*]
set yrange [labels - 0.5:-0.5]
set offsets 0, graph 0.1, 0, 0
if (limit > 0) \
    set arrow from limit, graph 0 to limit, graph 1 nohead front linewidth 2 linecolor '#b03030'
high = 0.8 / series
data = file . '.data'
y(i) = column(0) - 0.4 + high * i
plot data skip 1 using (0):(column(0)):ytic(1) with points pointtype -1 notitle, \
     for [i = 1:series] data \
         using (column(i + 1)):(y(i - 0.5)):(0):(column(i + 1)):(y(i - 1)):(y(i)) \
         with boxxyerror linetype i title columnheader(i + 1), \
     for [i = 1:series] data skip 1 \
         using (column(i + 1)):(y(i - 0.5)):(sprintf(' %.5g', column(i + 1))) \
         with labels left notitle
