/// <reference lib="esnext.disposable" />

/** Milliseconds, or text such as "500ms", "90s", "10m" or "1h30m". */
export type Duration = number | string;

/** One key, up to 16 that are acquired all or none, or the parts of a key. */
export type Key = string | string[] | KeyParts;

export interface KeyParts {
  profile?: string;
  component?: string;
  environment?: string;
  stack?: string;
  service?: string;
}

export interface ConnectOptions {
  /** http://HOST:PORT, https://HOST:PORT or unix:/PATH; several servers of one store as a list. Default: BELAY_STORE. */
  url?: string | string[];
  /** Default: the content of `tokenFile`, then BELAY_AUTH_TOKEN, then the content of the file that BELAY_AUTH_FILE names. */
  token?: string;
  tokenFile?: string;
  /** CA certificates to trust instead of the system's. Default: BELAY_CA_FILE. */
  caFile?: string;
  /** How long an answer may take, in addition to a wait. Default 10 s. */
  timeout?: Duration;
  /** `locked_by` of locks. Default: USER@HOST:PID/N. Acquisitions that wait for one key at a time need different owners. */
  owner?: string;
  ownerName?: string;
}

export interface HoldOptions {
  owner?: string;
  ownerName?: string;
  /** The lease. Default: that of the profile that the key matches, otherwise 10 minutes. */
  ttl?: Duration;
  /** false: do not renew. A duration: renew this often, and promise it, so that the lock can be shown as stale. */
  heartbeat?: boolean | Duration;
  staleAfter?: Duration;
  profile?: string;
  metadata?: Record<string, string>;
  /** Gives up the request, or the wait. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends HoldOptions {
  /** How long to wait in the queue; default 0. */
  wait?: Duration;
  /** Your own id for this acquisition, to repeat it after an UnknownOutcomeError. */
  lockId?: string;
  shared?: boolean;
  slots?: number;
  reentrant?: boolean;
  correlationId?: string;
  /** Acquire it although it is frozen, and why; for admins. */
  ignoreFreeze?: string;
}

export interface AdoptOptions extends HoldOptions {
  newLockId?: string;
}

export type Outcome = "completed" | "failed";

/** One holder of a lock, as the server describes it. */
export interface HolderInfo {
  lock_id: string | null;
  token: number | null;
  locked_by: string | null;
  locked_by_name: string | null;
  acquired_by: string | null;
  status: "active" | "expired" | "released" | null;
  outcome: Outcome | "forced" | null;
  locked_at: string | null;
  expires_at: string | null;
  last_heartbeat: string | null;
  ttl_ms: number | null;
  expires_in_ms: number | null;
  valid_for_ms: number | null;
  is_stale: boolean;
  metadata: Record<string, string>;
}

export interface LockInfo extends HolderInfo {
  key: string;
  released_at: string | null;
  mode: "exclusive" | "shared" | "slots";
  slots: number | null;
  holders: HolderInfo[];
  waiting: Waiter[] | null;
}

/** The answer to a request with several keys. */
export interface Grants {
  lock_id: string | null;
  locks: LockInfo[];
}

export interface Waiter {
  position: number;
  key: string;
  locked_by: string;
  locked_by_name: string;
  since: string;
  mode: LockInfo["mode"];
}

export interface LockEvent {
  id: number | null;
  timestamp: string;
  level: "INFO" | "WARN";
  event: string;
  lock_key: string;
  lock_id: string | null;
  token: number | null;
  locked_by: string | null;
  locked_by_name: string | null;
  by: string | null;
  reason: string | null;
  duration_seconds: number | null;
  metadata: Record<string, string>;
}

export interface Freeze {
  id: string;
  pattern: string;
  reason: string;
  by: string;
  created_at: string;
  from: string | null;
  until: string | null;
  in_force: boolean;
}

/** A lock that is held. A heartbeat renews it until it is released or lost. */
export interface Lock extends AsyncDisposable {
  readonly key: string;
  readonly keys: string[];
  readonly lockId: string;
  /** The fencing token: send it with each write that the lock protects, and have the receiver reject lower ones. */
  readonly token: number | null;
  /** The fencing token of each key. */
  readonly tokens: Record<string, number | null>;
  /** The lock as the server last described it. */
  readonly info: LockInfo;
  /** How many milliseconds the lock may still be relied on, unless it is renewed. */
  readonly validFor: number;
  /** What the client knows by itself, by the clock and without a request. */
  readonly isHeld: boolean;
  /** Aborts when the lock is lost, before another client can hold it; `reason` is the LockLostError. */
  readonly signal: AbortSignal;
  /** Throws LockLostError if the lock is not held, by the clock and without a request. */
  throwIfLost(): void;
  /** Asks the server whether the lock is held, with `for` whether it stays so for that long. Resolves to `validFor`. */
  check(options?: { for?: Duration }): Promise<number>;
  renew(options?: { ttl?: Duration }): Promise<number>;
  /** Rejects with LockLostError if the lock was lost before. */
  release(options?: { outcome?: Outcome }): Promise<void>;
  /** Looks after the lock no longer, and leaves it held until its lease ends: to hand its id to a process that adopts it. */
  detach(): string;
}

/** Events as they happen; reconnects by itself and goes on after the last event. */
export interface EventStream extends AsyncIterable<LockEvent> {
  /** Resolves once the stream is open: from then on no event is missed. */
  open(): Promise<void>;
  close(): void;
}

export interface ListOptions {
  prefix?: string;
  status?: "active" | "expired" | "released" | "all";
  stale?: boolean;
  /** Locks per request; default 100. */
  pageSize?: number;
}

export interface FreezeOptions {
  reason: string;
  from?: Date | string;
  until?: Date | string;
  for?: Duration;
  by?: string;
  /** Your own id, to repeat it after an UnknownOutcomeError. */
  id?: string;
}

export class Client implements AsyncDisposable {
  constructor(options?: ConnectOptions);
  /** The server that is in use. */
  readonly url: string;
  close(): void;

  acquire(key: Key, options?: AcquireOptions): Promise<Lock>;
  /** Holds a lock while `work` runs, and releases it as completed, or as failed if `work` throws. */
  withLock<T>(key: Key, options: AcquireOptions, work: (lock: Lock, signal: AbortSignal) => T | Promise<T>): Promise<T>;
  withLock<T>(key: Key, work: (lock: Lock, signal: AbortSignal) => T | Promise<T>): Promise<T>;
  /** Exchanges a lock id that was handed over for one of this client's own. */
  adopt(key: Key, lockId: string, options?: AdoptOptions): Promise<Lock>;

  /** By a lock id, without a Lock object. */
  renew(key: Key, options: { lockId: string; ttl?: Duration }): Promise<LockInfo | Grants>;
  release(key: Key, options: { lockId: string; outcome?: Outcome }): Promise<LockInfo | Grants>;
  /** Whether a token or a lock id still holds the lock; rejects with LockLostError if not. */
  check(key: Key, options: { lockId?: string; token?: number; for?: Duration }): Promise<LockInfo | Grants>;
  /** Ends the lock of another client; for admins. */
  forceUnlock(key: string, options?: { reason?: string; lockId?: string; by?: string }): Promise<LockInfo>;

  status(key: string): Promise<LockInfo>;
  list(options?: ListOptions): AsyncGenerator<LockInfo, void, undefined>;
  queue(key: string): Promise<Waiter[]>;
  history(key: string, options?: { limit?: number }): Promise<LockEvent[]>;
  events(options?: { prefix?: string; after?: number; signal?: AbortSignal }): EventStream;

  freeze(pattern: string, options: FreezeOptions): Promise<Freeze>;
  unfreeze(idOrPattern: string, options?: { reason?: string; by?: string }): Promise<Freeze[]>;
  freezes(): Promise<Freeze[]>;

  [Symbol.asyncDispose](): Promise<void>;
}

/** A client of the server at `url`, or of several, by default of BELAY_STORE. Sends nothing yet. */
export function connect(url?: string | string[], options?: Omit<ConnectOptions, "url">): Client;

export type ErrorCode =
  "invalid" | "held" | "frozen" | "lost" | "id_used" | "not_found" | "forbidden" | "unavailable" | "unknown";

export class BelayError extends Error {
  readonly code: ErrorCode;
  /** The server's word for it, if a server answered. */
  readonly serverCode?: string;
  readonly status?: number;
  /** The lock that stands in the way, if the server named it. */
  readonly lock: LockInfo | null;
  readonly lockId?: string;
}

/** Bad input; nothing was changed. */
export class InvalidError extends BelayError {}
/** Another client holds the lock, at once or when the wait was over; `lock` is that lock. */
export class LockHeldError extends BelayError {}
/** A freeze forbids new holders. */
export class FrozenError extends LockHeldError {}
/** The lock is not this client's, or its lease can no longer be proved: stop what it protects. */
export class LockLostError extends BelayError {}
/** The lock id names an acquisition that is over. */
export class IdUsedError extends BelayError {}
export class NotFoundError extends BelayError {}
/** The token is missing, unknown, or not permitted to do this. */
export class ForbiddenError extends BelayError {}
/** No server answered, or its store did not. Nothing was changed. */
export class UnavailableError extends BelayError {}
/** The answer was lost, and the change may have been made: repeat the call with the same `lockId` to find out. */
export class UnknownOutcomeError extends BelayError {}
