package sim

// Only is the plan with the faults of these numbers alone, as String lists them; numbers that there are not are left
// out.
func (p *Plan) Only(numbers []int) *Plan {
	q := &Plan{Calm: p.Calm}
	for _, n := range numbers {
		if n >= 0 && n < len(p.Faults) {
			q.Faults = append(q.Faults, p.Faults[n])
		}
	}
	return q
}

// Shrink looks for few faults of the seed's plan with which the universe still fails, and returns their numbers with
// the failure that they lead to. It leaves out a half, a quarter and so on down to one, as long as anything fails;
// that may be another failure than the first. For a universe that does not fail, all numbers are returned.
func Shrink(c Config) ([]int, Result) {
	plan := c.SeedPlan()
	c.Trace = nil
	try := func(numbers []int) Result {
		c.Plan = plan.Only(numbers)
		return Run(c)
	}
	left := make([]int, len(plan.Faults))
	for i := range left {
		left[i] = i
	}
	failing := try(left)
	if failing.Err == nil {
		return left, failing
	}
	for size := (len(left) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(left); {
			fewer := append(append([]int(nil), left[:at]...), left[min(at+size, len(left)):]...)
			if r := try(fewer); r.Err != nil {
				left, failing = fewer, r
			} else {
				at += size
			}
		}
	}
	return left, failing
}
