package dcs

import (
	"encoding/binary"
	"unicode/utf16"
)

const sector = 2048

// image is an ISO 9660 image with Joliet names, labelled ignition, that holds
// data as ignition/config.ign. The same data make the same bytes.
func image(data []byte) []byte {
	const (
		tables = 19 // path tables: little and big endian, plain and Joliet
		dirs   = 23 // root and ignition, plain and Joliet
		file   = 27
	)
	blocks := (len(data) + sector - 1) / sector
	img := make([]byte, (file+max(blocks, 1))*sector)
	copy(img[file*sector:], data)
	for i, joliet := range []bool{false, true} {
		table, root, sub := tables+2*i, dirs+2*i, dirs+1+2*i
		dir, name := encode("IGNITION", "ignition", joliet), encode("CONFIG.IGN;1", "config.ign", joliet)
		tableSize := 10 + (8 + len(dir) + len(dir)%2)
		descriptor(img[(16+i)*sector:], byte(1+i), len(img)/sector, table, tableSize, root, joliet)
		for order, at := range []int{table, table + 1} {
			t := img[at*sector:]
			pathEntry(t, []byte{0}, root, order == 1)
			pathEntry(t[10:], dir, sub, order == 1)
		}
		r := img[root*sector:]
		r = record(r, []byte{0}, root, sector, true)
		r = record(r, []byte{1}, root, sector, true)
		record(r, dir, sub, sector, true)
		s := img[sub*sector:]
		s = record(s, []byte{0}, sub, sector, true)
		s = record(s, []byte{1}, root, sector, true)
		record(s, name, file, len(data), false)
	}
	end := img[18*sector:]
	end[0] = 255
	copy(end[1:], "CD001\x01")
	return img
}

func encode(plain, joliet string, isJoliet bool) []byte {
	if !isJoliet {
		return []byte(plain)
	}
	var out []byte
	for _, u := range utf16.Encode([]rune(joliet)) {
		out = binary.BigEndian.AppendUint16(out, u)
	}
	return out
}

func both32(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

func both16(b []byte, n uint16) {
	binary.LittleEndian.PutUint16(b, n)
	binary.BigEndian.PutUint16(b[2:], n)
}

func descriptor(d []byte, kind byte, size, table, tableSize, root int, joliet bool) {
	d[0] = kind
	copy(d[1:], "CD001\x01")
	space := encode(" ", " ", joliet)
	for _, field := range [][2]int{{8, 72}, {190, 813}} {
		for i := field[0]; i < field[1]; i += len(space) {
			copy(d[i:field[1]], space)
		}
	}
	copy(d[40:], encode("ignition", "ignition", joliet))
	both32(d[80:], size)
	if joliet {
		copy(d[88:], "%/E")
	}
	both16(d[120:], 1)
	both16(d[124:], 1)
	both16(d[128:], sector)
	both32(d[132:], tableSize)
	binary.LittleEndian.PutUint32(d[140:], uint32(table))
	binary.BigEndian.PutUint32(d[148:], uint32(table+1))
	record(d[156:], []byte{0}, root, sector, true)
	for i := range 4 { // dates: not given
		copy(d[813+17*i:], "0000000000000000")
	}
	d[881] = 1
}

func pathEntry(b, name []byte, at int, big bool) {
	b[0] = byte(len(name))
	if big {
		binary.BigEndian.PutUint32(b[2:], uint32(at))
		binary.BigEndian.PutUint16(b[6:], 1)
	} else {
		binary.LittleEndian.PutUint32(b[2:], uint32(at))
		binary.LittleEndian.PutUint16(b[6:], 1)
	}
	copy(b[8:], name)
}

// record writes a directory record and returns what follows it.
func record(b, name []byte, at, size int, dir bool) []byte {
	n := 33 + len(name)
	n += n % 2
	b[0] = byte(n)
	both32(b[2:], at)
	both32(b[10:], size)
	copy(b[18:], []byte{126, 1, 1, 0, 0, 0, 0})
	if dir {
		b[25] = 2
	}
	both16(b[28:], 1)
	b[32] = byte(len(name))
	copy(b[33:], name)
	return b[n:]
}
