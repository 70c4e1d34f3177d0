package workload

import (
	"strconv"
	"strings"
	"time"
)

// cronFields is what each of the seven fields of a cron matches, by number: second, minute, hour, day, month,
// weekday (1 = Sunday), year.
type cronFields [7]map[int]bool

var cronRanges = [7][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {1, 7}, {1970, 2100}}

var cronAliases = map[string]string{
	"@yearly":  "0 0 1 1 *",
	"@monthly": "0 0 1 * *",
	"@weekly":  "0 0 * * 1",
	"@daily":   "0 0 * * *",
	"@hourly":  "0 * * * *",
}

// parseCron reads expressions of numbers; the names of days and months are left to the server's own tests.
func parseCron(text string) (cronFields, bool) {
	if alias, is := cronAliases[text]; is {
		text = alias
	}
	words := strings.Fields(text)
	if len(words) == 5 {
		words = append([]string{"0"}, words...)
	}
	if len(words) == 6 {
		words = append(words, "*")
	}
	var out cronFields
	if len(words) != 7 {
		return out, false
	}
	for i, word := range words {
		out[i] = map[int]bool{}
		for _, item := range strings.Split(word, ",") {
			if !addItem(out[i], item, cronRanges[i], i == 3 || i == 5) {
				return out, false
			}
		}
	}
	return out, true
}

func addItem(into map[int]bool, item string, limits [2]int, question bool) bool {
	base, stepText, stepped := strings.Cut(item, "/")
	step := 1
	var err error
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return false
		}
	}
	from, to := limits[0], limits[1]
	if base != "*" && !(question && base == "?") {
		low, high, ranged := strings.Cut(base, "-")
		if from, err = strconv.Atoi(low); err != nil {
			return false
		}
		switch {
		case ranged:
			if to, err = strconv.Atoi(high); err != nil {
				return false
			}
		case !stepped:
			to = from
		}
	}
	if from < limits[0] || to > limits[1] || from > to {
		return false
	}
	for n := from; n <= to; n += step {
		into[n] = true
	}
	return true
}

// next is the first match after the second in which the instant lies.
func (c cronFields) next(afterMs int64) (int64, bool) {
	first := time.Unix(afterMs/1000+1, 0).UTC()
	day := time.Date(first.Year(), first.Month(), first.Day(), 0, 0, 0, 0, time.UTC)
	for ; day.Year() <= cronRanges[6][1]; day = day.AddDate(0, 0, 1) {
		if !c[6][day.Year()] || !c[4][int(day.Month())] || !c[3][day.Day()] || !c[5][int(day.Weekday())+1] {
			continue
		}
		for second := 0; second < 24*60*60; second++ {
			if !c[2][second/3600] {
				second += 3599
				continue
			}
			at := day.Add(time.Duration(second) * time.Second)
			if !at.Before(first) && c[1][second/60%60] && c[0][second%60] {
				return at.UnixMilli(), true
			}
		}
	}
	return 0, false
}
