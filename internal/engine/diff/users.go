package diff

import (
	"strings"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// users compares passwords and ssh keys. The order of keys opens no other door;
// hashes are compared and never shown.
func users(before, after *ignition.Config) []Change {
	oldUsers, oldHashes, oldKeys := userItems(before)
	newUsers, newHashes, newKeys := userItems(after)
	out := oldUsers.compare(newUsers, render.KindUser)
	for _, c := range oldHashes.compare(newHashes, KindPasswordHash) {
		c.Before, c.After, c.Fields = redacted(c.Before), redacted(c.After), nil
		out = append(out, c)
	}
	return append(out, oldKeys.compare(newKeys, render.KindSSHKey)...)
}

func redacted(item *Item) *Item {
	if item == nil {
		return nil
	}
	return &Item{Redacted: true}
}

// userItems lists users, their hashes and their keys. A key is named by user and
// its whole text: comments repeat, and its place in the list moves.
func userItems(cfg *ignition.Config) (users, hashes, keys items) {
	for i := range cfg.Passwd.Users {
		u := &cfg.Passwd.Users[i]
		users.put(u.Name, &Item{})
		if hash := text(u.PasswordHash); hash != "" {
			hashes.put(u.Name, &Item{Value: hash})
		}
		for _, raw := range u.SSHAuthorizedKeys {
			if key := strings.TrimSpace(string(raw)); key != "" {
				keys.put(u.Name+"/"+key, &Item{Value: key})
			}
		}
	}
	return users, hashes, keys
}
