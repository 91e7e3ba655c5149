"""`python -m tersor.cli`: the command line where the script is not on the path."""

from tersor.cli import main

main()
