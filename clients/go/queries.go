package belay

import (
	"context"
	"net/url"
	"time"
)

func lockPath(key, rest string) string { return "/v1/locks/" + url.PathEscape(key) + rest }

// Status returns a lock, held or not. The error is ErrNotFound if there is no record of it.
func (c *Client) Status(ctx context.Context, key string) (Info, error) {
	return ask[Info](ctx, c, get(lockPath(key, "")))
}

// ListOptions selects locks.
type ListOptions struct {
	Prefix   string // of the key
	Status   string // active, expired, released or all; "": active and expired
	Stale    bool   // only stale ones
	PageSize int    // locks per request; 0: the server's default
}

// List returns all locks that match.
func (c *Client) List(ctx context.Context, o ListOptions) ([]Info, error) {
	query := fields{"prefix": o.Prefix, "status": o.Status, "stale": o.Stale, "limit": o.PageSize}
	type page struct {
		Locks      []Info
		NextCursor string `json:"next_cursor"`
	}
	for locks := []Info{}; ; {
		page, err := ask[page](ctx, c, get("/v1/locks"+query.query()))
		locks = append(locks, page.Locks...)
		if err != nil || page.NextCursor == "" {
			return locks, err
		}
		query["cursor"] = page.NextCursor
	}
}

// History returns the last events of a lock, oldest first; limit 0 is the server's default.
func (c *Client) History(ctx context.Context, key string, limit int) ([]Event, error) {
	got, err := ask[struct{ Events []Event }](ctx, c, get(lockPath(key, "/history")+fields{"limit": limit}.query()))
	return got.Events, err
}

// CheckOptions says what to compare the holder with: a token, a lock id, or both.
type CheckOptions struct {
	Token  int64
	LockID string
	For    time.Duration // it must be valid for at least this long
}

// Check is for receivers that were sent a token or a lock id: is it the current holder's? If not, the error is ErrLost.
// Holders use Lock.Check.
func (c *Client) Check(ctx context.Context, key string, o CheckOptions) (Info, error) {
	r := post("/v1/check", fields{"key": key, "token": o.Token, "lock_id": o.LockID, "for_ms": o.For})
	r.isRead = true
	return ask[Info](ctx, c, r)
}

// ForceOptions describes a forced unlock.
type ForceOptions struct {
	Reason string
	By     string // the person
	LockID string // the lock to end; "": that of the current holder
}

// Force ends the lock of another client. It is for admins.
func (c *Client) Force(ctx context.Context, key string, o ForceOptions) (Info, error) {
	r := newCall("DELETE", lockPath(key, ""), nil)
	if o.LockID == "" { // with an id, a repeated request never ends the lock of a later holder
		if info, err := c.Status(ctx, key); err == nil && len(info.Holders) == 1 {
			o.LockID = info.Holders[0].LockID
		}
	}
	if o.LockID == "" {
		r.tries = 1
	}
	r.body = fields{"lock_id": o.LockID, "reason": o.Reason, "by": o.By}
	return ask[Info](ctx, c, r)
}

// FreezeOptions describes a freeze.
type FreezeOptions struct {
	Pattern, Reason string // required
	By              string // the person
	From, Until     time.Time
	For             time.Duration // instead of Until
	ID              string        // default: a random one
}

type freezes struct{ Freezes []Freeze }

// Freeze forbids new holders of the keys that match a pattern. It is for admins.
func (c *Client) Freeze(ctx context.Context, o FreezeOptions) (Freeze, error) {
	got, err := ask[freezes](ctx, c, post("/v1/freezes", fields{"id": firstOf(o.ID, newID()), "pattern": o.Pattern,
		"reason": o.Reason, "by": o.By, "from": o.From.UTC(), "until": o.Until.UTC(), "for_ms": o.For}))
	if err != nil || len(got.Freezes) != 1 {
		return Freeze{}, err
	}
	return got.Freezes[0], nil
}

// Unfreeze ends the freeze with an id, or those with exactly this pattern, and returns them.
func (c *Client) Unfreeze(ctx context.Context, idOrPattern, reason string) ([]Freeze, error) {
	got, err := ask[freezes](ctx, c, newCall("DELETE", "/v1/freezes/"+url.PathEscape(idOrPattern), fields{"reason": reason}))
	return got.Freezes, err
}

// Freezes returns the freezes that concern the keys of this client's token.
func (c *Client) Freezes(ctx context.Context) ([]Freeze, error) {
	got, err := ask[freezes](ctx, c, get("/v1/freezes"))
	return got.Freezes, err
}
