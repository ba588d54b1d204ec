from __future__ import annotations

from dataclasses import replace

import audit_samples as samples

from noalias.audit.report.headline import consequence, figures, happens_text, headline
from noalias.audit.result import Measurement, OpaqueRegion, Price, Report, Steps

STEPS = Steps(3, 3, 1.0)


def priced(stock: Measurement, cured: Measurement, *, exact: bool | None = True) -> Price:
    return Price(stock, cured, runs=9, exact=exact)


def test_a_measured_report_says_how_many_copies_go() -> None:
    assert headline(samples.full()) == "Each step makes 9 copies; enable() takes away 8 of them."


def test_all_of_them_is_said_when_it_is_all() -> None:
    cured = replace(samples.CURED, copies=0)
    report = replace(samples.full(), price=priced(samples.STOCK, cured))
    assert headline(report).endswith("enable() takes away all of them.")


def test_no_gain_is_said_plainly() -> None:
    report = replace(samples.full(), price=priced(samples.STOCK, samples.STOCK))
    assert headline(report) == "The cures take away none of this step's 9 copies."


def test_without_a_measurement_the_prediction_is_called_one() -> None:
    report = Report(findings=(samples.HIDDEN,), steps=STEPS)
    assert headline(report) == (
        "Each step is predicted to make 4 extra copies for aliases, 108 MiB in all."
    )


def test_nothing_found_is_only_clean_if_all_was_seen() -> None:
    clean = Report(steps=STEPS)
    assert headline(clean) == "No line of this step pays for an alias."
    opaque = replace(clean, opaque=(OpaqueRegion("torch.compile region"),))
    assert headline(opaque) == "Nothing was found in what could be looked into."
    known = replace(clean, suppressed=2)
    assert headline(known) == "Nothing is new against the baseline."
    assert headline(Report()) == "No backward pass was seen, so there is no price to tell."


def test_a_faster_step_is_told_with_both_times() -> None:
    text = consequence(samples.price())
    assert text == (
        "The step takes 17.0 ms instead of 33.3 ms (−49 %), peak memory 412 MiB → 331 MiB, "
        "gradients bit-identical."
    )


def test_times_within_noise_are_called_the_same() -> None:
    stock = replace(samples.STOCK, time_min=0.0100)
    cured = replace(samples.CURED, time_min=0.0099)
    assert consequence(priced(stock, cured)).startswith("The time stays the same within noise")
    assert figures(priced(stock, cured))[0].change == "same"


def test_a_difference_smaller_than_that_of_the_runs_among_themselves_is_noise() -> None:
    stock = replace(samples.STOCK, time_min=0.0593, time_median=0.0690)
    cured = replace(samples.CURED, time_min=0.0670, time_median=0.0700)
    assert consequence(priced(stock, cured)).startswith("The time stays the same within noise")
    quiet = replace(stock, time_median=0.0594)
    assert consequence(priced(quiet, cured)).startswith("The step got slower")


def test_a_time_that_was_taken_once_or_twice_is_called_neither_faster_nor_slower() -> None:
    """The median of two runs says nothing of how much they differ by themselves."""
    cured = replace(samples.CURED, time_min=2 * samples.STOCK.time_min)
    few = replace(priced(samples.STOCK, cured), runs=2)

    assert consequence(few).startswith("The time was taken 2 times each, too few to compare (")
    time = figures(few)[0]
    assert (time.change, time.better, time.even) == ("unclear", False, True)
    assert consequence(replace(few, runs=3)).startswith("The step got slower")


def test_errors_are_counted_over_the_whole_run() -> None:
    raised = replace(samples.HIDDEN, code="NA303", count=2)

    assert (happens_text(raised), happens_text(replace(samples.HIDDEN, count=2))) == (
        "2 times",
        "2 times per step",
    )


def test_a_slower_step_is_not_hidden() -> None:
    cured = replace(samples.CURED, time_min=0.05)
    text = consequence(priced(samples.STOCK, cured))
    assert text.startswith("The step got slower: 33.3 ms → 50.0 ms (+50 %)")
    assert not figures(priced(samples.STOCK, cured))[0].better


def test_differing_gradients_are_shouted() -> None:
    assert "DIFFER" in consequence(priced(samples.STOCK, samples.CURED, exact=False))
    unknown = consequence(priced(samples.STOCK, samples.CURED, exact=None))
    assert "gradients" not in unknown


def test_times_that_lie_far_apart_and_vary_as_much_are_not_called_the_same() -> None:
    stock = replace(samples.STOCK, time_min=0.023, time_median=0.300)
    cured = replace(samples.CURED, time_min=0.274, time_median=0.280)
    price = priced(stock, cured)
    assert consequence(price).startswith("The time is too unsteady to tell (23.0 ms → 274 ms)")
    assert figures(price)[0].change == "unclear"
