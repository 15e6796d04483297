package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones are known without files of the host
)

// Window is a time of the week in which nodes may be started. One that goes
// beyond midnight belongs to the day on which it opens.
type Window struct {
	Days     []time.Weekday // sorted
	From, To int            // minutes since midnight, 0–1440; To ≤ From ends on the next day
	Zone     *time.Location
}

// Windows are open when one of them is; none are always open.
type Windows []Window

var dayNames = map[string]time.Weekday{
	"sun": time.Sunday, "mon": time.Monday, "tue": time.Tuesday, "wed": time.Wednesday,
	"thu": time.Thursday, "fri": time.Friday, "sat": time.Saturday,
}

const maxWindows = 50

// ParseWindows reads the value of the annotation millwright.io/windows: windows
// separated by semicolons, each of days, hours and, unless it is UTC, a time
// zone:
//
//	Mon-Thu 22:00-04:00 Europe/Paris; Sat,Sun 00:00-24:00
func ParseWindows(value string) (Windows, error) {
	var out Windows
	var errs []error
	for _, part := range strings.Split(value, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		w, err := parseWindow(part)
		if err != nil {
			errs = append(errs, fmt.Errorf("window %q: %w", strings.TrimSpace(part), err))
			continue
		}
		out = append(out, w)
	}
	if len(out) > maxWindows {
		errs = append(errs, fmt.Errorf("%d windows, at most %d", len(out), maxWindows))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

func parseWindow(text string) (Window, error) {
	f := strings.Fields(text)
	if len(f) < 2 || len(f) > 3 {
		return Window{}, errors.New("it has to be days, hours and a time zone, such as Mon-Fri 22:00-04:00 Europe/Paris")
	}
	w := Window{Zone: time.UTC}
	var err error
	if w.Days, err = parseDays(f[0]); err != nil {
		return Window{}, err
	}
	from, to, ok := strings.Cut(f[1], "-")
	if !ok {
		return Window{}, fmt.Errorf("hours %q: such as 22:00-04:00", f[1])
	}
	if w.From, err = parseMinute(from); err != nil {
		return Window{}, err
	}
	if w.To, err = parseMinute(to); err != nil {
		return Window{}, err
	}
	if w.From == w.To || w.From == 24*60 {
		return Window{}, fmt.Errorf("hours %q: they are no time; a whole day is 00:00-24:00", f[1])
	}
	if len(f) == 3 {
		if w.Zone, err = time.LoadLocation(f[2]); err != nil || f[2] == "Local" {
			return Window{}, fmt.Errorf("time zone %q: a name of the time zone database, such as Europe/Paris", f[2])
		}
	}
	return w, nil
}

func parseDays(text string) ([]time.Weekday, error) {
	if text == "*" || strings.EqualFold(text, "daily") {
		text = "Sun-Sat"
	}
	var out []time.Weekday
	for _, part := range strings.Split(text, ",") {
		a, b, isRange := strings.Cut(part, "-")
		first, ok := dayNames[strings.ToLower(a)]
		last := first
		if isRange && ok {
			last, ok = dayNames[strings.ToLower(b)]
		}
		if !ok {
			return nil, fmt.Errorf("days %q: such as Mon-Fri or Sat,Sun or daily", text)
		}
		for d := first; ; d = (d + 1) % 7 {
			out = append(out, d)
			if d == last {
				break
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parseMinute(text string) (int, error) {
	h, m, ok := strings.Cut(text, ":")
	hour, err1 := strconv.Atoi(h)
	minute, err2 := strconv.Atoi(m)
	if !ok || len(m) != 2 || err1 != nil || err2 != nil || hour < 0 || minute < 0 || minute > 59 || hour*60+minute > 24*60 {
		return 0, fmt.Errorf("time of day %q: 00:00 to 24:00", text)
	}
	return hour*60 + minute, nil
}

// span returns when the window opens and closes that belongs to the day of t
// plus days; ok is false when it does not open on that day.
func (w Window) span(t time.Time, days int) (from, to time.Time, ok bool) {
	t = t.In(w.Zone)
	at := func(day, minute int) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day()+day, minute/60, minute%60, 0, 0, w.Zone)
	}
	noon := at(days, 12*60)
	end := days
	if w.To <= w.From {
		end++
	}
	_, ok = slices.BinarySearch(w.Days, noon.Weekday())
	return at(days, w.From), at(end, w.To), ok
}

// Open says whether nodes may be started at t.
func (ws Windows) Open(t time.Time) bool { return len(ws) == 0 || !ws.Closes(t).IsZero() }

// Closes returns when the window closes that is open at t; zero when none is,
// or when there are none. The next may open at the same moment.
func (ws Windows) Closes(t time.Time) time.Time {
	var out time.Time
	for _, w := range ws {
		for days := -1; days <= 0; days++ {
			from, to, ok := w.span(t, days)
			if ok && !t.Before(from) && t.Before(to) && to.After(out) {
				out = to
			}
		}
	}
	return out
}

// Opens returns when the next window opens after t; zero when none ever does.
func (ws Windows) Opens(t time.Time) time.Time {
	var out time.Time
	for _, w := range ws {
		for days := 0; days <= 8; days++ {
			from, _, ok := w.span(t, days)
			if ok && from.After(t) && (out.IsZero() || from.Before(out)) {
				out = from
			}
		}
	}
	return out
}
