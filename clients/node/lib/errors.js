// What can go wrong, by what a caller does next.

export class BelayError extends Error {
  constructor(message, { serverCode, status, lock = null, lockId, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = new.target.code;
    this.serverCode = serverCode;
    this.status = status;
    this.lock = lock;
    this.lockId = lockId;
  }
}

/** Bad input; nothing was changed. */
export class InvalidError extends BelayError {
  static code = "invalid";
}

/** Another client holds the lock, at once or when the wait was over; `lock` is that lock. */
export class LockHeldError extends BelayError {
  static code = "held";
}

/** A freeze forbids new holders. */
export class FrozenError extends LockHeldError {
  static code = "frozen";
}

/** The lock is not this client's, or its lease can no longer be proved: stop what it protects. */
export class LockLostError extends BelayError {
  static code = "lost";
}

/** The lock id names an acquisition that is over. */
export class IdUsedError extends BelayError {
  static code = "id_used";
}

export class NotFoundError extends BelayError {
  static code = "not_found";
}

/** The token is missing, unknown, or not permitted to do this. */
export class ForbiddenError extends BelayError {
  static code = "forbidden";
}

/** No server answered, or its store did not. Nothing was changed. */
export class UnavailableError extends BelayError {
  static code = "unavailable";
}

/** The answer was lost, and the change may have been made: repeat the call with the same `lockId` to find out. */
export class UnknownOutcomeError extends BelayError {
  static code = "unknown";
}

const CLASSES = {
  lock_held: LockHeldError, superseded: LockHeldError, frozen: FrozenError,
  not_holder: LockLostError, lease_lost: LockLostError, id_used: IdUsedError,
};
const STATUSES = { 401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError, 429: UnavailableError, 503: UnavailableError };

/** The error that an answer means. A proxy in between does not answer as a server does. */
export function errorOf(url, status, body) {
  const { code, message = `${url} answers with status ${status}`, lock } = body?.error ?? {};
  const Class = CLASSES[code] ?? STATUSES[status] ?? (status >= 500 ? UnknownOutcomeError : InvalidError);
  return new Class(message, { serverCode: code, status, lock });
}

/** Whether a request that failed so may be sent again as it is. */
export function isFault(error) {
  return error instanceof UnavailableError || error instanceof UnknownOutcomeError;
}
