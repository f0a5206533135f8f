# Lines over minutes. Set by figures.py: file (without suffix), title, unit, series (their number).
set terminal svg size 960, 420 font 'sans-serif,12' background 'white'
set output file . '.svg'
set title title noenhanced
set border 3
set tics nomirror
set grid ytics linecolor '#dddddd'
set key outside bottom center horizontal noenhanced
set linetype 1 linecolor '#336791' linewidth 2
set linetype 2 linecolor '#d38b28' linewidth 2
set linetype 3 linecolor '#7a9e48' linewidth 2
set xlabel 'minutes'
set ylabel unit
set yrange [0:*]
plot for [i = 1:series] file . '.data' using 1:(column(i + 1)) with lines linetype i title columnheader(i + 1)
