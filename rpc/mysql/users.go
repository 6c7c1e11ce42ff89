package mysql

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"sync/atomic"

	"vitess.io/vitess/go/mysql"
	"vitess.io/vitess/go/mysql/sqlerror"
	querypb "vitess.io/vitess/go/vt/proto/query"
)

// User is somebody who may log in.
type User struct {
	Name, Password string
	// ReadOnly keeps the user to statements that change nothing.
	ReadOnly bool
}

// Users are those who may log in, and how they prove that they are. The list
// can be replaced at any time; who is logged in stays so.
type Users struct {
	list    atomic.Pointer[[]User]
	methods []mysql.AuthMethod
}

var _ mysql.AuthServer = (*Users)(nil)

// NewUsers returns a list without anybody in it.
func NewUsers() *Users {
	u := &Users{}
	u.Set(nil)
	native := mysql.NewMysqlNativeAuthMethod((*nativeProof)(u), u)
	sha2 := mysql.NewSha2CachingAuthMethod((*sha2Proof)(u), (*sha2Proof)(u), u)
	u.methods = []mysql.AuthMethod{native, sha2}
	return u
}

// Set replaces the list.
func (u *Users) Set(list []User) { u.list.Store(&list) }

func (u *Users) find(name string) (User, bool) {
	for _, user := range *u.list.Load() {
		if user.Name == name {
			return user, true
		}
	}
	return User{}, false
}

// HandleUser implements mysql.UserValidator: whether there is such a user is
// not told before the proof.
func (u *Users) HandleUser(string) bool { return true }

// AuthMethods implements mysql.AuthServer.
func (u *Users) AuthMethods() []mysql.AuthMethod { return u.methods }

// DefaultAuthMethodDescription implements mysql.AuthServer: the method that
// all clients have.
func (u *Users) DefaultAuthMethodDescription() mysql.AuthMethodDescription {
	return mysql.MysqlNativePassword
}

func denied(name string, from net.Addr) error {
	return sqlerror.NewSQLErrorf(sqlerror.ERAccessDeniedError, sqlerror.SSAccessDeniedError, "Access denied for user %s from %s", excerpt(name), from)
}

// prove checks a proof of the given size, which made makes out of the password
// that is right. An empty password is proved by an empty answer.
func (u *Users) prove(name string, answer []byte, from net.Addr, made func(password string) []byte) (mysql.Getter, error) {
	user, ok := u.find(name)
	want := made(user.Password)
	if user.Password == "" {
		want = nil
	}
	if right := subtle.ConstantTimeCompare(answer, want) == 1; !right || !ok {
		return nil, denied(name, from)
	}
	return loggedIn{user}, nil
}

// loggedIn is a user of a connection.
type loggedIn struct{ User }

// Get implements mysql.Getter.
func (l loggedIn) Get() *querypb.VTGateCallerID { return &querypb.VTGateCallerID{Username: l.Name} }

// nativeProof is mysql_native_password.
type nativeProof Users

// UserEntryWithHash implements mysql.HashStorage.
func (p *nativeProof) UserEntryWithHash(_ *mysql.Conn, salt []byte, user string, answer []byte, from net.Addr) (mysql.Getter, error) {
	return (*Users)(p).prove(user, answer, from, func(password string) []byte {
		first := sha1.Sum([]byte(password))
		second := sha1.Sum(first[:])
		salted := sha1.Sum(append(append([]byte(nil), salt...), second[:]...))
		return xor(first[:], salted[:])
	})
}

// sha2Proof is caching_sha2_password. Passwords are known here, so the long way
// without a cache is never needed.
type sha2Proof Users

// UserEntryWithCacheHash implements mysql.CachingStorage.
func (p *sha2Proof) UserEntryWithCacheHash(_ *mysql.Conn, salt []byte, user string, answer []byte, from net.Addr) (mysql.Getter, mysql.CacheState, error) {
	if len(answer) == 1 && answer[0] == 0 {
		answer = nil // how this method says that there is no password
	}
	who, err := (*Users)(p).prove(user, answer, from, func(password string) []byte {
		first := sha256.Sum256([]byte(password))
		second := sha256.Sum256(first[:])
		salted := sha256.Sum256(append(second[:], salt...))
		return xor(first[:], salted[:])
	})
	if err != nil {
		return nil, mysql.AuthRejected, err
	}
	return who, mysql.AuthAccepted, nil
}

// UserEntryWithPassword implements mysql.PlainTextStorage, which nobody gets to.
func (p *sha2Proof) UserEntryWithPassword(_ *mysql.Conn, user, _ string, from net.Addr) (mysql.Getter, error) {
	return nil, denied(user, from)
}

func xor(a, b []byte) []byte {
	out := make([]byte, len(a))
	subtle.XORBytes(out, a, b)
	return out
}
