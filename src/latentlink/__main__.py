"""`python -m latentlink`, the command for launchers that start a module (torchrun)."""

from latentlink.cli import main

if __name__ == "__main__":
    main()
