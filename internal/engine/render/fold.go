package render

import "github.com/coreos/ignition/v2/config/v3_5/types"

// Each fold merges the child entry c into the parent entry p of the same key.

// or is the child's value where it has one.
func or[T any](p, c *T) *T {
	if c != nil {
		return c
	}
	return p
}

func set[T any](p **T, c *T) {
	if c != nil {
		*p = c
	}
}

// union appends the child's values that the parent lacks.
func union[T comparable](p, c []T) []T {
	if len(c) == 0 {
		return p
	}
	have := make(map[T]bool, len(p)+len(c))
	for _, v := range p {
		have[v] = true
	}
	for _, v := range c {
		if !have[v] {
			have[v] = true
			p = append(p, v)
		}
	}
	return p
}

// foldList merges a short keyed list inside an entry.
func foldList[T any](p, c []T, key func(*T) string, fold func(p, c *T)) []T {
	if len(c) == 0 {
		return p
	}
	at := make(map[string]int, len(p)+len(c))
	for i := range p {
		at[key(&p[i])] = i
	}
	for i := range c {
		k := key(&c[i])
		if j, ok := at[k]; ok {
			fold(&p[j], &c[i])
			continue
		}
		at[k] = len(p)
		p = append(p, c[i])
	}
	return p
}

func foldResource(p, c *types.Resource) {
	set(&p.Compression, c.Compression)
	set(&p.Source, c.Source)
	set(&p.Verification.Hash, c.Verification.Hash)
	p.HTTPHeaders = foldHeaders(p.HTTPHeaders, c.HTTPHeaders)
}

// foldHeaders deletes a header that the child names without a value.
func foldHeaders(p, c types.HTTPHeaders) types.HTTPHeaders {
	if len(c) == 0 {
		return p
	}
	values := make(map[string]*types.HTTPHeader, len(c))
	for i := range c {
		values[c[i].Name] = &c[i]
	}
	var out types.HTTPHeaders
	had := make(map[string]bool, len(p))
	for _, h := range p {
		had[h.Name] = true
		n, ok := values[h.Name]
		switch {
		case !ok:
			out = append(out, h)
		case n.Value != nil:
			out = append(out, *n)
		}
	}
	for _, h := range c {
		if !had[h.Name] {
			out = append(out, h)
		}
	}
	return out
}

func foldNode(p, c *types.Node) {
	set(&p.Group.ID, c.Group.ID)
	set(&p.Group.Name, c.Group.Name)
	set(&p.Overwrite, c.Overwrite)
	set(&p.User.ID, c.User.ID)
	set(&p.User.Name, c.User.Name)
}

func foldDirectory(p, c *types.Directory) {
	foldNode(&p.Node, &c.Node)
	set(&p.Mode, c.Mode)
}

func foldFile(p, c *types.File) {
	foldNode(&p.Node, &c.Node)
	p.Append = append(p.Append, c.Append...)
	foldResource(&p.Contents, &c.Contents)
	set(&p.Mode, c.Mode)
}

func foldLink(p, c *types.Link) {
	foldNode(&p.Node, &c.Node)
	set(&p.Hard, c.Hard)
	set(&p.Target, c.Target)
}

func foldGroup(p, c *types.PasswdGroup) {
	set(&p.Gid, c.Gid)
	set(&p.PasswordHash, c.PasswordHash)
	set(&p.ShouldExist, c.ShouldExist)
	set(&p.System, c.System)
}

// foldUser leaves the ssh keys to its caller, which has them indexed.
func foldUser(p, c *types.PasswdUser) {
	set(&p.Gecos, c.Gecos)
	p.Groups = union(p.Groups, c.Groups)
	set(&p.HomeDir, c.HomeDir)
	set(&p.NoCreateHome, c.NoCreateHome)
	set(&p.NoLogInit, c.NoLogInit)
	set(&p.NoUserGroup, c.NoUserGroup)
	set(&p.PasswordHash, c.PasswordHash)
	set(&p.PrimaryGroup, c.PrimaryGroup)
	set(&p.Shell, c.Shell)
	set(&p.ShouldExist, c.ShouldExist)
	set(&p.System, c.System)
	set(&p.UID, c.UID)
}

// foldUnit leaves the drop-ins to its caller, which has them indexed.
func foldUnit(p, c *types.Unit) {
	set(&p.Contents, c.Contents)
	set(&p.Enabled, c.Enabled)
	set(&p.Mask, c.Mask)
}

func foldDisk(p, c *types.Disk) {
	p.Partitions = foldList(p.Partitions, c.Partitions, partitionKey, foldPartition)
	set(&p.WipeTable, c.WipeTable)
}

func foldPartition(p, c *types.Partition) {
	set(&p.GUID, c.GUID)
	set(&p.Label, c.Label)
	p.Number = c.Number
	set(&p.Resize, c.Resize)
	set(&p.ShouldExist, c.ShouldExist)
	set(&p.SizeMiB, c.SizeMiB)
	set(&p.StartMiB, c.StartMiB)
	set(&p.TypeGUID, c.TypeGUID)
	set(&p.WipePartitionEntry, c.WipePartitionEntry)
}

func foldFilesystem(p, c *types.Filesystem) {
	set(&p.Format, c.Format)
	set(&p.Label, c.Label)
	p.MountOptions = append(p.MountOptions, c.MountOptions...)
	p.Options = append(p.Options, c.Options...)
	set(&p.Path, c.Path)
	set(&p.UUID, c.UUID)
	set(&p.WipeFilesystem, c.WipeFilesystem)
}

func foldRaid(p, c *types.Raid) {
	p.Devices = union(p.Devices, c.Devices)
	set(&p.Level, c.Level)
	p.Options = append(p.Options, c.Options...)
	set(&p.Spares, c.Spares)
}

func foldLuks(p, c *types.Luks) {
	set(&p.Cex.Enabled, c.Cex.Enabled)
	set(&p.Clevis.Custom.Config, c.Clevis.Custom.Config)
	set(&p.Clevis.Custom.NeedsNetwork, c.Clevis.Custom.NeedsNetwork)
	set(&p.Clevis.Custom.Pin, c.Clevis.Custom.Pin)
	p.Clevis.Tang = foldList(p.Clevis.Tang, c.Clevis.Tang, func(t *types.Tang) string { return t.URL }, func(p, c *types.Tang) {
		set(&p.Advertisement, c.Advertisement)
		set(&p.Thumbprint, c.Thumbprint)
	})
	set(&p.Clevis.Threshold, c.Clevis.Threshold)
	set(&p.Clevis.Tpm2, c.Clevis.Tpm2)
	set(&p.Device, c.Device)
	set(&p.Discard, c.Discard)
	foldResource(&p.KeyFile, &c.KeyFile)
	set(&p.Label, c.Label)
	p.OpenOptions = union(p.OpenOptions, c.OpenOptions)
	p.Options = append(p.Options, c.Options...)
	set(&p.UUID, c.UUID)
	set(&p.WipeVolume, c.WipeVolume)
}
