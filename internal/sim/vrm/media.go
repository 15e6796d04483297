package vrm

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"unicode/utf16"
)

// maxFile bounds an uploaded file.
const maxFile = 16 << 20

func (s *Server) listFiles(c *call) (any, *Error) {
	d := s.st.Datastores[c.id()]
	if d == nil {
		return nil, missing("The datastore")
	}
	out := []object{}
	for _, n := range sortedKeys(d.Files) {
		out = append(out, object{"fileName": n, "fileSize": len(d.Files[n])})
	}
	return page(c, "files", out), nil
}

func (s *Server) deleteFile(c *call) (any, *Error) {
	d := s.st.Datastores[c.id()]
	if d == nil || d.Files[c.q("fileName")] == nil {
		return nil, missing("The file")
	}
	ref := d.ID + "@" + c.q("fileName")
	for _, v := range s.st.VMs {
		if v.CDROM == ref {
			return nil, bad(codeBusy, "The file is in the CD-ROM drive of a VM.")
		}
	}
	delete(d.Files, c.q("fileName"))
	s.changed()
	return object{}, nil
}

func (s *Server) applyUpload(c *call) (any, *Error) {
	d := s.st.Datastores[c.id()]
	if d == nil {
		return nil, missing("The datastore")
	}
	if d.Refuses {
		return nil, input("The datastore does not support file upload.")
	}
	var in struct {
		FileName string `json:"fileName"`
		FileSize int    `json:"fileSize"`
	}
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	if in.FileName == "" || in.FileSize < 1 || in.FileSize > maxFile {
		return nil, input("fileName and fileSize are needed.")
	}
	token := rand.Text()
	s.uploads[token] = upload{d.ID, in.FileName}
	base := s.upBase
	if base == "" {
		base = "http://" + c.r.Host
		if c.r.TLS != nil {
			base = "https://" + c.r.Host
		}
	}
	return object{"url": base + "/upload/" + token}, nil
}

// putFile is the upload port of a host: each URL works once.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request) {
	defer s.leave()
	if e := s.enter(r, "file.put"); e != nil {
		refuse(w, e)
		return
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxFile))
	s.mu.Lock()
	defer s.mu.Unlock()
	up, ok := s.uploads[r.PathValue("id")]
	delete(s.uploads, r.PathValue("id"))
	if f := s.takeFault("file.put"); f != nil {
		refuse(w, f.error())
		return
	}
	if !ok || err != nil {
		refuse(w, &Error{Status: http.StatusForbidden, Code: codeInput, Des: "The upload URL is not valid or no longer."})
		return
	}
	d := s.st.Datastores[up.datastore]
	if d.Files == nil {
		d.Files = map[string][]byte{}
	}
	d.Files[up.file] = b
	s.changed()
	answer(w, http.StatusOK, object{})
}

func (s *Server) attachCDROM(c *call) (any, *Error) {
	var in struct{ DevicePath, Protocol string }
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	ds, file, _ := strings.Cut(in.DevicePath, "@")
	if d := s.st.Datastores[ds]; d == nil || d.Files[file] == nil {
		return nil, missing("The file")
	}
	states := []string{running, stopped}
	if s.needsOn {
		states = states[:1]
	}
	return s.act(c, doInsert, in.DevicePath, "", states...)
}

func (s *Server) detachCDROM(c *call) (any, *Error) {
	return s.act(c, doEject, "", "", running, stopped)
}

// firstBoot is what the guest finds on the disc in its drive.
func (s *Server) firstBoot(v *vm) []byte {
	ds, file, _ := strings.Cut(v.CDROM, "@")
	if d := s.st.Datastores[ds]; d != nil {
		return ReadDisc(d.Files[file], "ignition", "config.ign")
	}
	return nil
}

const sector = 2048

// ReadDisc returns a file of an ISO 9660 image by its Joliet path, nil when
// the image has no such file.
func ReadDisc(img []byte, path ...string) []byte {
	for at := 16 * sector; at+sector <= len(img); at += sector {
		d := img[at : at+sector]
		if string(d[1:6]) != "CD001" || d[0] == 255 {
			return nil
		}
		if d[0] == 2 {
			return walk(img, d[156:190], path)
		}
	}
	return nil
}

func walk(img, rec []byte, path []string) []byte {
	at, n := int(binary.LittleEndian.Uint32(rec[2:]))*sector, int(binary.LittleEndian.Uint32(rec[10:]))
	if at < 0 || n < 0 || at+n > len(img) {
		return nil
	}
	data := img[at : at+n]
	if len(path) == 0 {
		return data
	}
	for len(data) > 33 && data[0] > 33 && int(data[0]) <= len(data) {
		r := data[:data[0]]
		data = data[data[0]:]
		k := int(r[32])
		if 33+k > len(r) {
			return nil
		}
		units := make([]uint16, 0, k/2)
		for i := 33; i+1 < 33+k; i += 2 {
			units = append(units, binary.BigEndian.Uint16(r[i:]))
		}
		if name, _, _ := strings.Cut(string(utf16.Decode(units)), ";"); name == path[0] {
			return walk(img, r, path[1:])
		}
	}
	return nil
}
