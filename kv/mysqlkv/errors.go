package mysqlkv

import (
	"errors"

	"github.com/go-sql-driver/mysql"

	"abide/kv"
)

// storeName is the name of this engine in errors.
const storeName = "mysql"

// ErrFormat: the table is not a store of this program, a newer one wrote it, or the server is not one that this
// engine works on. The message says which, and what to do.
var ErrFormat = errors.New("the database cannot be opened by this version")

// Numbers of the servers' errors, the same in MySQL and MariaDB unless said.
const (
	errShutdown        = 1053
	errDenied          = 1142
	errNoTable         = 1146
	errRecordChanged   = 1020 // innodb_snapshot_isolation
	errLockTimeout     = 1205 // rolls back the statement, not the transaction
	errDeadlock        = 1213
	errReadOnlyOption  = 1290
	errInterrupted     = 1317
	errKeyFile         = 1034
	errOldKeyFile      = 1035
	errTableCrashed    = 1194
	errIndexCorrupt    = 1712
	errReadOnlyTx      = 1792
	errReadOnlyInnoDB  = 1836
	errKilledMariaDB   = 1927
	errBeforeCommit    = 3101 // group replication rolled back
	errKilledMySQL     = 3169
	errNoWait          = 3572
	errIdleMySQL       = 4031
	errNetRead         = 1158
	errNetReadTimeout  = 1159
	errNetWrite        = 1160
	errNetWriteTimeout = 1161
)

// number is that of a server's error; 0 if err is none.
func number(err error) int {
	var known *mysql.MySQLError
	if errors.As(err, &known) {
		return int(known.Number)
	}
	return 0
}

// isLost reports whether the session is gone or out of step after err.
func isLost(err error) bool {
	switch number(err) {
	case 0, errShutdown, errKilledMariaDB, errKilledMySQL, errIdleMySQL, errNetRead, errNetReadTimeout, errNetWrite, errNetWriteTimeout:
		return err != nil
	}
	return false
}

// isReadOnly reports whether the server refuses to write, as a replica does.
func isReadOnly(err error) bool {
	switch number(err) {
	case errReadOnlyOption, errReadOnlyTx, errReadOnlyInnoDB:
		return true
	}
	return false
}

// identity says which of the contract's errors an error of the driver or the server is, if nothing was committed.
func identity(err error) error {
	switch number(err) {
	case errLockTimeout, errDeadlock, errRecordChanged, errNoWait, errBeforeCommit:
		return kv.ErrConflict
	case errKeyFile, errOldKeyFile, errTableCrashed, errIndexCorrupt:
		return kv.ErrCorrupt
	}
	return kv.ErrUnavailable
}

// failure maps an error that came before a commit: nothing was committed.
func failure(op string, err error) error {
	var known *kv.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &kv.Error{Is: identity(err), Store: storeName, Op: op, Err: err}
}

// unavailable is an error that is this engine's own.
func unavailable(op, detail string) error {
	return &kv.Error{Is: kv.ErrUnavailable, Store: storeName, Op: op, Detail: detail}
}
