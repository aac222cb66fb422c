"""The colours of figures and page, as plain text: known without loading matplotlib."""

# The page replaces these five, and the first of SERIES, by its own light and dark ones: keep them distinct.
INK, MUTED, RULE, MISSING, PAPER = "#1b2733", "#5c6975", "#d4dae0", "#e8ebee", "#ffffff"
BOTH = "#2b85c4"  # in pictures, which the page cannot recolour: stands out on a pale page and on a dark one
ON_DARK, ON_LIGHT = "#fdfdfd", "#14212d"  # numbers inside coloured cells: the same on every page
# Okabe and Ito, safe for the colour-blind
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

# Pale to dark in lightness alone, so they survive grey printing; the diverging one is pale at 0.
SEQUENTIAL_STOPS = (
    "#f7fbf4",
    "#d9efd3",
    "#a5dcc0",
    "#62c3c6",
    "#2f9cc2",
    "#2270ac",
    "#23458a",
    "#1b1f57",
)
DIVERGING_STOPS = ("#7f3b08", "#c8741b", "#f6bd74", "#f6f3ee", "#b9b5d8", "#7765ab", "#2d004b")
# Where a change has a direction: orange is always worse
WORSE, BETTER = DIVERGING_STOPS[1], DIVERGING_STOPS[-2]
