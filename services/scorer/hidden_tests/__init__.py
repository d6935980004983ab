"""Answers that are programs, judged by hidden cases from outside: what runs knows inputs and never what is expected."""
