//! Sign-ins of people to the console, with the tokens that the server keeps for them.
//!
//! A row exists as long as its sign-in: the end of a sign-in deletes the row. One process at a time asks the issuer for
//! new tokens. It holds a lease in the row meanwhile, and no transaction.

use crate::entity::sign_in;
use crate::{Read, Store, StoreError, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::SignInId;
use holdpoint_core::sign_in::{SealedTokens, SecretHash, SignIn};
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;
use std::time::Duration;

/// Maximum number of sign-ins of a user. Beyond it a new one ends the oldest.
const SIGN_INS_MAX: u64 = 20;
/// How many rows beyond the bound one sign-in deletes at most. Sign-ins at the same time may pass the bound for a while.
const SURPLUS_MAX: u64 = 100;

const TABLE: &str = "sign_ins";

#[derive(Debug)]
pub struct NewSignIn<'a> {
    pub id: SignInId,
    pub secret: &'a SecretHash,
    pub person: &'a Principal,
    pub known_until: Timestamp,
    pub tokens: &'a SealedTokens,
    pub browser: &'a str,
    pub begun_at: Timestamp,
    pub ends_at: Timestamp,
}

/// A sign-in that has ended, with the tokens that the issuer may be asked to revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSignIn {
    pub id: SignInId,
    pub tokens: SealedTokens,
}

/// The process that asks the issuer for new tokens of a sign-in.
#[derive(Debug, Clone, Copy)]
pub struct RenewingProcess<'a> {
    pub id: SignInId,
    /// A name that no other attempt has.
    pub by: &'a str,
}

/// New tokens of a sign-in.
#[derive(Debug)]
pub struct RenewedTokens<'a> {
    pub tokens: &'a SealedTokens,
    /// The roles of the new access token, and when the server stops accepting it. `None` if that token could not be
    /// checked: then the person is known as before.
    pub known: Option<(&'a [String], Timestamp)>,
    /// No process asks again before this time, if it is set.
    pub rests: Option<Duration>,
}

/// Matches the sign-ins whose time is over.
pub(crate) fn is_over(now: SimpleExpr) -> SimpleExpr {
    ExprTrait::lte(sign_in::Column::EndsAt.into_expr(), now)
}

fn read(row: sign_in::Model) -> Result<SignIn, StoreError> {
    let sign_in::Model { tenant_id, user_id, .. } = row;
    Ok(SignIn {
        id: rows::id(TABLE, &row.sign_in_id)?,
        person: Principal { tenant_id, user_id, roles: rows::json(TABLE, &row.roles)? },
        known_until: Timestamp::from_micros(row.known_until),
        rests_until: row.rests_until.map(Timestamp::from_micros),
        is_asked: row.asked_by.is_some(),
        browser: row.browser,
        begun_at: Timestamp::from_micros(row.begun_at),
        ends_at: Timestamp::from_micros(row.ends_at),
    })
}

fn ended(row: sign_in::Model) -> Result<EndedSignIn, StoreError> {
    Ok(EndedSignIn { id: rows::id(TABLE, &row.sign_in_id)?, tokens: SealedTokens(row.tokens) })
}

fn of(person: &Principal) -> SimpleExpr {
    let Principal { tenant_id, user_id, .. } = person;
    sign_in::Column::TenantId.eq(tenant_id).and(sign_in::Column::UserId.eq(user_id))
}

impl Store {
    /// Returns the sign-in with this secret, with one statement that waits for no chat. Its time may be over.
    pub async fn sign_in(&self, secret: &SecretHash) -> Result<Option<SignIn>, StoreError> {
        let of_secret = sign_in::Column::SecretHash.eq(secret.as_str());
        let found = sign_in::Entity::find().filter(of_secret).one(&self.read_once().await?.tx).await?;
        found.map(read).transpose()
    }
}

impl Read {
    /// Returns the sign-ins of a person that are in force at this time, the newest first.
    pub async fn sign_ins_of(&self, person: &Principal, now: Timestamp) -> Result<Vec<SignIn>, StoreError> {
        let found = sign_in::Entity::find()
            .filter(of(person))
            .filter(sign_in::Column::EndsAt.gt(now.as_micros()))
            .order_by_desc(sign_in::Column::BegunAt)
            .order_by_desc(sign_in::Column::SignInId)
            .limit(SIGN_INS_MAX)
            .all(&self.tx)
            .await?;
        found.into_iter().map(read).collect()
    }
}

impl Write {
    /// Adds a sign-in. Returns the oldest ones of the person beyond `SIGN_INS_MAX`, which it ends.
    pub async fn add_sign_in(&self, new: &NewSignIn<'_>) -> Result<Vec<EndedSignIn>, StoreError> {
        let row = sign_in::ActiveModel {
            sign_in_id: Set(new.id.to_string()),
            secret_hash: Set(new.secret.as_str().to_owned()),
            tenant_id: Set(new.person.tenant_id.clone()),
            user_id: Set(new.person.user_id.clone()),
            roles: Set(json!(new.person.roles).to_string()),
            known_until: Set(new.known_until.as_micros()),
            tokens: Set(new.tokens.0.clone()),
            browser: Set(new.browser.to_owned()),
            begun_at: Set(new.begun_at.as_micros()),
            ends_at: Set(new.ends_at.as_micros()),
            asked_by: Set(None),
            rests_until: Set(None),
        };
        sign_in::Entity::insert(row).exec_without_returning(&self.tx).await?;
        let surplus = sign_in::Entity::find()
            .filter(of(new.person))
            .order_by_desc(sign_in::Column::BegunAt)
            .order_by_desc(sign_in::Column::SignInId)
            .offset(SIGN_INS_MAX)
            .limit(SURPLUS_MAX)
            .all(&self.tx)
            .await?;
        let ids = surplus.iter().map(|row| row.sign_in_id.clone());
        if !surplus.is_empty() {
            let of_surplus = sign_in::Column::SignInId.is_in(ids);
            sign_in::Entity::delete_many().filter(of_surplus).exec(&self.tx).await?;
        }
        surplus.into_iter().map(ended).collect()
    }

    /// Begins to ask the issuer for new tokens, for this long at most. Returns the tokens, or `None` if another process
    /// asks or has asked, or if the sign-in has ended. `known_until` is that of the access token to be renewed.
    pub async fn begin_renewal(
        &self,
        asking: RenewingProcess<'_>,
        known_until: Timestamp,
        lasts: Duration,
    ) -> Result<Option<SealedTokens>, StoreError> {
        let now = self.now.as_micros();
        let begun = sign_in::Entity::update_many()
            .col_expr(sign_in::Column::AskedBy, Expr::value(asking.by))
            .col_expr(sign_in::Column::RestsUntil, Expr::value(self.now.plus(lasts).as_micros()))
            .filter(sign_in::Column::SignInId.eq(asking.id.to_string()))
            .filter(sign_in::Column::KnownUntil.eq(known_until.as_micros()))
            .filter(sign_in::Column::RestsUntil.is_null().or(sign_in::Column::RestsUntil.lte(now)))
            .exec(&self.tx)
            .await?;
        if begun.rows_affected == 0 {
            return Ok(None);
        }
        let row = sign_in::Entity::find_by_id(asking.id.to_string()).one(&self.tx).await?;
        Ok(row.map(|row| SealedTokens(row.tokens)))
    }

    /// Stores new tokens. Returns false if the sign-in has ended, or another process asks by now.
    pub async fn end_renewal(
        &self,
        asking: RenewingProcess<'_>,
        renewed: &RenewedTokens<'_>,
    ) -> Result<bool, StoreError> {
        let mut update = sign_in::Entity::update_many()
            .col_expr(sign_in::Column::Tokens, Expr::value(renewed.tokens.0.as_str()));
        if let Some((roles, known_until)) = renewed.known {
            update = update
                .col_expr(sign_in::Column::Roles, Expr::value(json!(roles).to_string()))
                .col_expr(sign_in::Column::KnownUntil, Expr::value(known_until.as_micros()));
        }
        let ended = self.resting(update, renewed.rests).filter(is_asked_by(asking)).exec(&self.tx).await?;
        Ok(ended.rows_affected == 1)
    }

    /// Ends a renewal without new tokens. No process asks again before this time has passed.
    pub async fn rest_renewal(&self, asking: RenewingProcess<'_>, rests: Duration) -> Result<(), StoreError> {
        let update = self.resting(sign_in::Entity::update_many(), Some(rests));
        update.filter(is_asked_by(asking)).exec(&self.tx).await?;
        Ok(())
    }

    fn resting(
        &self,
        update: sea_orm::UpdateMany<sign_in::Entity>,
        rests: Option<Duration>,
    ) -> sea_orm::UpdateMany<sign_in::Entity> {
        let until = rests.map(|rests| self.now.plus(rests).as_micros());
        update
            .col_expr(sign_in::Column::AskedBy, Expr::value(None::<String>))
            .col_expr(sign_in::Column::RestsUntil, Expr::value(until))
    }

    /// Ends a sign-in whose tokens the issuer does not renew. Returns false if it has ended, or another process asks by
    /// now.
    pub async fn refuse_renewal(&self, asking: RenewingProcess<'_>) -> Result<bool, StoreError> {
        let deleted = sign_in::Entity::delete_many().filter(is_asked_by(asking)).exec(&self.tx).await?;
        Ok(deleted.rows_affected == 1)
    }

    /// Ends a sign-in of this person. Returns `None` if the person has no such sign-in.
    pub async fn end_sign_in(
        &self,
        id: SignInId,
        person: &Principal,
    ) -> Result<Option<EndedSignIn>, StoreError> {
        let which = sign_in::Column::SignInId.eq(id.to_string()).and(of(person));
        let found = sign_in::Entity::find().filter(which.clone()).one(&self.tx).await?;
        sign_in::Entity::delete_many().filter(which).exec(&self.tx).await?;
        found.map(ended).transpose()
    }

    /// Ends all sign-ins of all users, and returns their number.
    pub async fn end_all_sign_ins(&self) -> Result<u64, StoreError> {
        Ok(sign_in::Entity::delete_many().exec(&self.tx).await?.rows_affected)
    }

    /// Deletes the sign-ins whose time is over.
    pub async fn delete_sign_ins(&self) -> Result<(), StoreError> {
        let over = is_over(Expr::value(self.now.as_micros()));
        sign_in::Entity::delete_many().filter(over).exec(&self.tx).await?;
        Ok(())
    }
}

fn is_asked_by(asking: RenewingProcess<'_>) -> SimpleExpr {
    let RenewingProcess { id, by } = asking;
    sign_in::Column::SignInId.eq(id.to_string()).and(sign_in::Column::AskedBy.eq(by))
}
