package ignition

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseMode reads file permissions as people write them, always in octal:
// "0644", "644" and "0o644" are all 420. Use it wherever permissions are text;
// pasted as a number into an Ignition config, 644 would be the mode 01204. A
// warning names the spelling that other readers take for decimal.
func ParseMode(text string) (mode int, warning *Problem, err error) {
	digits := strings.TrimSpace(text)
	marked := false
	for _, prefix := range []string{"0o", "0O", "0"} {
		if rest, ok := strings.CutPrefix(digits, prefix); ok && rest != "" {
			digits, marked = rest, true
			break
		}
	}
	value, perr := strconv.ParseUint(digits, 8, 16)
	if perr != nil || value > 0o7777 {
		return 0, nil, fmt.Errorf("parse mode %q: want octal permissions from 0000 to 7777, e.g. 0644", short(text))
	}
	if !marked && len(digits) > 1 {
		warning = &Problem{
			Value:   text,
			Detail:  fmt.Sprintf("the leading zero is missing; write 0%s, since a reader that takes it for decimal sets 0%o", digits, asDecimal(digits)),
			Warning: true,
		}
	}
	return int(value), warning, nil
}

// asDecimal reads octal digits as if they were decimal, which is always possible.
func asDecimal(digits string) int {
	v, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return v
}

// LikelyMode returns the mode that was meant where the digits of an octal mode
// were given in decimal, as 644 for 0644 (420): the original refuses most of
// these, since they have bits beyond 0777. ok is false if the digits are no
// octal permissions.
func LikelyMode(given int) (meant int, ok bool) {
	value, err := strconv.ParseUint(strconv.Itoa(given), 8, 16)
	if err != nil || value > 0o777 || given < 100 {
		return 0, false
	}
	return int(value), true
}

// modeProblem refuses a mode in the original's words; its value is in both bases
// and, if the digits look octal, says what they would be.
func modeProblem(i int, path string, mode int) Problem {
	value := fmt.Sprintf("%d (0%o)", mode, mode)
	if meant, ok := LikelyMode(mode); ok {
		value = fmt.Sprintf("%d (0%o, while 0%d is %d)", mode, mode, mode, meant)
	}
	return Problem{
		Path:   fmt.Sprintf("storage.files.%d.mode", i),
		Value:  value,
		Detail: fmt.Sprintf("invalid mode %#o for %v, cannot exceed 0777", mode, path),
	}
}

func badMode(mode *int) bool { return mode != nil && (*mode < 0 || *mode > 0o777) }
