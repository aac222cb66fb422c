"""`python -m headscope` is `headscope`."""

from headscope.commands import main

if __name__ == "__main__":
    main()
