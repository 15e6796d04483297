package ignition

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// advice says what would be right, by the official library's words for what is
// wrong.
var advice = map[string]string{
	"duplicate entry defined":                                    "remove one of the two entries, or merge them",
	"path not absolute":                                          "start the path with /",
	"invalid url scheme":                                         "use data:, http:, https:, tftp:, s3:, arn: or gs:",
	"unable to parse url":                                        "percent-encode the text, as in data:,a%20b",
	"invalid systemd unit extension":                             "end the name with .service, .socket, .device, .mount, .automount, .swap, .target, .path, .timer, .snapshot, .slice or .scope",
	"invalid systemd drop-in extension":                          "end the name with .conf",
	"overwrite must be false if source is unspecified":           `set overwrite to false, or give contents.source ("data:," is the empty file)`,
	"source must be specified if verification is specified":      "give the source, or drop verification",
	"invalid compression method":                                 `use "" or "gzip"`,
	"illegal file mode":                                          "give permission bits in decimal: 420 is 0644, 493 is 0755",
	"cannot set both id and name":                                "keep one of id and name",
	"link target is required":                                    "give the target",
	"unrecognized hash function":                                 "use sha512- or sha256- and the hex digest",
	"malformed hash specifier":                                   "use sha512- or sha256- and the hex digest",
	"incorrect size for hash sum":                                "a sha512 digest has 128 hex digits, a sha256 digest 64",
	"source is required":                                         "give the source",
	"path conflicts with systemd unit or dropin":                 "describe it under storage or under systemd, not both",
	"invalid filesystem format":                                  "use ext4, btrfs, xfs, vfat, swap or none",
	"disk device is required":                                    "give the device's path, e.g. /dev/disk/by-id/…",
	"partition numbers collide":                                  "give each partition its own number",
	"partitions overlap":                                         "move or shrink one of the partitions",
	"must specify only one of `shouldExist` or `shouldNotExist`": "keep the argument in one of the two lists",
}

// explain adds the advice, if there is one.
func explain(message string) string {
	if hint, ok := advice[message]; ok {
		return message + "; " + hint
	}
	if key, ok := strings.CutPrefix(message, "unused key "); ok {
		return fmt.Sprintf("key %s is unknown in this version and is ignored; correct its spelling, raise ignition.version or remove it", key)
	}
	return message
}

// decodeTree is for error paths only; nil if raw is not JSON.
func decodeTree(raw []byte) any {
	var tree any
	if len(raw) == 0 || json.Unmarshal(raw, &tree) != nil {
		return nil
	}
	return tree
}

// valueAt returns the scalar at a dotted path, shortened. What may be secret –
// contents, sources beyond their scheme, password hashes – is left out.
func valueAt(tree any, path string) string {
	if path == "" {
		return ""
	}
	last := ""
	for key := range strings.SplitSeq(path, ".") {
		last = key
		switch t := tree.(type) {
		case map[string]any:
			tree = t[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(t) {
				return ""
			}
			tree = t[i]
		default:
			return ""
		}
	}
	return showValue(tree, last)
}

func showValue(value any, key string) string {
	switch v := value.(type) {
	case map[string]any:
		// An entry as a whole is known by its key.
		for _, key := range []string{"path", "name", "device"} {
			if s, ok := v[key].(string); ok {
				return short(s)
			}
		}
	case string:
		return showText(v, key)
	case float64:
		if key == "mode" {
			return fmt.Sprintf("%d (0%o)", int64(v), int64(v))
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

func showText(text, key string) string {
	switch key {
	case "contents", "passwordHash", "config", "advertisement", "value":
		return ""
	case "source":
		scheme, _, _ := strings.Cut(text, ":")
		return short(scheme) + ":…"
	}
	return short(text)
}
